package projections

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pocketcoder/events"
)

// history is a chat's events as they may lie in the log: some recordings one after the other, decisions, executions, what
// is no chat's and poison among them.
func history(t testing.TB, r *rapid.T, names []string) []events.Event {
	s := &story{t: t}
	all := []events.Event{s.created()}
	for i, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID).Draw(r, "recordings") {
		talk := conversation(t, name)[1:]
		if i > 0 {
			talk = talk[5:] // the message was sent with the first
		}
		all = append(all, talk...)
	}
	ours := []events.Event{
		s.submitted("m2"), s.submitted("m2"), s.sending("m2", msg2), s.sending("nobody", msg1), s.delivered("m2", msg2),
		s.asks("per_1", ses, "date"), s.decides(user, "per_1", events.Authorized), s.replies("per_1", "once"),
		s.own(events.ExecRequested{Exec: "x1", Permission: "per_1", Command: "date"}), s.own(events.ExecFinished{Exec: "x1"}),
		s.own(events.ExecChanged{Exec: "x1", Files: []events.Artifact{{Path: "a", Size: 1, SHA256: "00"}, {Path: "b", SHA256: "01"}}}),
		s.questions(), s.own(events.QuestionAnswered{Question: "que_1", Index: 1, Rejected: true}), s.own(events.TurnLost{Session: ses}),
		s.own(events.PermissionRequested{Permission: "intent1", Type: "bash"}), s.decides(user, "intent1", events.Denied),
		s.own(events.ChatUpdated{Title: new("Named")}), s.own(events.Deleted{}),
		saved(t, "sops", "one", `{"n":1}`), saved(t, "sops", "one", `{"n":2}`), configured(t, "sops", "one", events.Deleted{}), saved(t, "sops", "one", `3`),
		account(t, "ann", events.AccountCreated{Email: "a@b.c"}), account(t, "ann", events.AccountUpdated{Role: new("admin")}),
		account(t, "ann", events.PasswordChanged{}), account(t, "ann", events.Deleted{}),
	}
	for _, e := range ours {
		at := rapid.IntRange(1, len(all)).Draw(r, "at")
		all = slices.Insert(all, at, e)
	}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range all {
		all[i].Seq, all[i].Time = uint64(i+1), start.Add(time.Duration(i/3)*time.Millisecond) // several in the same millisecond
	}
	return all
}

// opened opens a file that a property uses.
func opened(r *rapid.T, path string) *file {
	f, err := openFile(context.Background(), path)
	if err != nil {
		r.Fatal(err)
	}
	return f
}

func digestOfFile(r *rapid.T, f *file) string {
	tx, _, err := f.snapshot(context.Background())
	if err != nil {
		r.Fatal(err)
	}
	defer tx.Rollback()
	d, err := digest(context.Background(), tx)
	if err != nil {
		r.Fatal(err)
	}
	return d
}

// crashed is the file as the disk has it when the process is killed: copied while it is open, then opened elsewhere.
func crashed(r *rapid.T, f *file, to string) *file {
	for _, s := range []string{"", "-wal"} {
		from, err := os.Open(f.path + s)
		if err != nil {
			r.Fatal(err)
		}
		copied, err := os.Create(to + s)
		if err == nil {
			_, err = io.Copy(copied, from)
		}
		if err != nil {
			r.Fatal(err)
		}
		from.Close()
		copied.Close()
	}
	f.close()
	return opened(r, to)
}

func TestAnyBatchingRedeliveryAndRestartGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	names := recordings(t)
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			r.Fatal(err)
		}
		all := decodeAll(history(t, r, names))
		atOnce := opened(r, filepath.Join(dir, "at-once.db"))
		defer atOnce.close()
		if err := atOnce.commit(all); err != nil {
			r.Fatal(err)
		}
		f, files := opened(r, filepath.Join(dir, "0.db")), 0
		for f.seq < uint64(len(all)) {
			switch rapid.SampledFrom([]string{"go on", "go on", "go on", "go on", "go on", "go on", "restart", "crash"}).Draw(r, "then") {
			case "go on":
				from := int(f.seq) - min(int(f.seq), rapid.IntRange(0, 5).Draw(r, "redelivered"))
				to := min(len(all), int(f.seq)+rapid.SampledFrom([]int{1, 2, 9, 60}).Draw(r, "batch"))
				if err := f.commit(all[from:to]); err != nil {
					r.Fatal(err)
				}
			case "restart":
				f.close()
				f = opened(r, f.path)
			case "crash":
				files++
				f = crashed(r, f, filepath.Join(dir, fmt.Sprintf("%d.db", files)))
			}
		}
		defer f.close()
		if a, b := digestOfFile(r, atOnce), digestOfFile(r, f); a != b {
			r.Fatalf("digests differ: %s, at once %s", b, a)
		}
	})
}

func TestAnyOrderAndDuplicatesOfDurableEventsGiveTheSameMessages(t *testing.T) {
	t.Parallel()
	names, histories, want := recordings(t), map[string][]events.Event{}, map[string]string{}
	for _, name := range names {
		histories[name] = slices.DeleteFunc(recording(t, name), func(e events.Event) bool { return e.OpenCodeSeq < 0 || isDeletion(e) })
	}
	rapid.Check(t, func(r *rapid.T) {
		name := rapid.SampledFrom(names).Draw(r, "recording")
		inOrder := histories[name]
		shuffled := rapid.Permutation(append(slices.Clone(inOrder), rapid.SliceOfN(rapid.SampledFrom(inOrder), 0, 10).Draw(r, "again")...)).Draw(r, "order")
		if want[name] == "" {
			want[name] = messagesAfter(t, r, name, inOrder)
		}
		if got := messagesAfter(t, r, name, shuffled); got != want[name] {
			r.Fatalf("in order:\n%s\nshuffled:\n%s", want[name], got)
		}
	})
}

// isDeletion says whether a session was deleted: that ends what is running at the time it comes.
func isDeletion(e events.Event) bool { return e.Subject.Kind == "opencode.session.deleted" }

// messagesAfter gives the rows of messages and parts, without when they came, after our message and the events.
func messagesAfter(t testing.TB, r *rapid.T, name string, oc []events.Event) string {
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		r.Fatal(err)
	}
	f := opened(r, filepath.Join(dir, "f.db"))
	defer f.close()
	all := append(conversation(t, name)[:4:4], oc...)
	for i := range all {
		all[i].Seq = uint64(i + 1)
	}
	if err := f.commit(decodeAll(all)); err != nil {
		r.Fatal(err)
	}
	var out string
	for _, query := range []string{
		"SELECT json_array(id,chat,session,role,engine_message_status,user_message_status,ai_engine_message_id,parent_id,error_domain,error_payload,agent,provider,model,cost,tokens_input,tokens_output,finish,oc_seq,removed) FROM messages ORDER BY id",
		"SELECT json_array(id,message,chat,oc_seq,removed,data) FROM parts ORDER BY id",
	} {
		var rows []string
		if err := f.readers.NewQuery(query).Column(&rows); err != nil {
			r.Fatal(err)
		}
		for _, row := range rows {
			out += row + "\n"
		}
	}
	return out
}
