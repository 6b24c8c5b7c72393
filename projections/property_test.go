package projections_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/projectionstest"
	"pocketcoder/projections/store"
)

// Properties are checked on 10 random histories, not on the 100 of rapid: a history takes up to a second. task fuzz
// takes 1,000.
func init() {
	if err := flag.Set("rapid.checks", "10"); err != nil {
		panic(err)
	}
}

// history is a chat's events as they may lie in the log: some recordings one after the other, decisions, executions,
// what is no chat's and poison among them.
func history(t testing.TB, r *rapid.T, names []string) []events.Event {
	s := &eventBuilder{t: t}
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
		s.request("per_1", ses, "date"), s.decides(user, "per_1", events.Authorized), s.replies("per_1", "once"),
		s.own(events.ExecRequested{Exec: "x1", Permission: "per_1", Command: "date"}), s.own(events.ExecFinished{Exec: "x1"}),
		s.own(events.ExecChanged{Exec: "x1", Files: []events.Artifact{{Path: "a", Size: 1, SHA256: "00"},
			{Path: "b", SHA256: "01"}}}),
		s.own(events.FileSent{File: "f1", MessageID: msg2, Part: "prt_1", Path: "a",
			Content: events.Blob{Name: "sha256-00"}}),
		s.questions(), s.own(events.QuestionAnswered{Question: "que_1", Index: 1, Rejected: true}),
		s.own(events.TurnLost{Session: ses}),
		s.own(events.PermissionRequested{Permission: "intent1", Type: "bash"}), s.decides(user, "intent1", events.Denied),
		s.own(events.ChatUpdated{Title: new("Named")}), s.own(events.Deleted{}),
		saved(t, "sops", "one", `{"n":1}`), saved(t, "sops", "one", `{"n":2}`),
		configured(t, "sops", "one", events.Deleted{}), saved(t, "sops", "one", `3`),
		account(t, "ann", events.AccountCreated{Email: "a@b.c"}), account(t, "ann",
			events.AccountUpdated{Role: new("admin")}),
		account(t, "ann", events.PasswordChanged{}), account(t, "ann", events.Deleted{}),
		account(t, "ann", events.ChatSeen{Chat: "c1", Seq: 7}), account(t, "ann", events.ChatSeen{Chat: "c1", Seq: 3}),
	}
	for _, e := range ours {
		at := rapid.IntRange(1, len(all)).Draw(r, "at")
		all = slices.Insert(all, at, e)
	}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range all {
		// several in the same millisecond
		all[i].Seq, all[i].Time = uint64(i+1), start.Add(time.Duration(i/3)*time.Millisecond)
	}
	return all
}

// longEnough returns a log that has more events than any history. Its events are never applied: Open moves aside a
// file that is ahead of its log.
func longEnough(t testing.TB) *log.Log {
	t.Helper()
	log, filler := eventstest.Log(t), []events.Event{}
	for range 1000 {
		filler = append(filler, own(t, user, events.ChatUpdated{}))
	}
	if _, err := log.AppendAll(t.Context(), filler); err != nil {
		t.Fatal(err)
	}
	return log
}

// opened opens read models for a property. The caller closes them.
func opened(r *rapid.T, dir string, log *log.Log) *projections.Model {
	m, err := projectionstest.Open(context.Background(), dir, log)
	if err != nil {
		r.Fatal(err)
	}
	if aside := m.ReplacedFile(); aside != "" {
		r.Fatal(aside)
	}
	return m
}

// crashed copies the open file to a new directory, as a killed process leaves it, and opens the copy.
func crashed(r *rapid.T, m *projections.Model, from, to string, log *log.Log) *projections.Model {
	files, err := filepath.Glob(filepath.Join(from, "readmodel.v*.db*"))
	if err != nil || len(files) == 0 {
		r.Fatal("no file", err)
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		r.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, "-shm") { // memory of the killed process
			continue
		}
		content, err := os.ReadFile(f)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(f)), content, 0o600)
		}
		if err != nil {
			r.Fatal(err)
		}
	}
	m.Close()
	return opened(r, to, log)
}

func TestAnyBatchingRedeliveryAndRestartGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	names, log := recordings(t), longEnough(t)
	expect.Property(t, func(r *rapid.T) {
		base, err := os.MkdirTemp(expect.MemoryDir(t), "")
		if err != nil {
			r.Fatal(err)
		}
		all := history(t, r, names)
		if err := os.Mkdir(filepath.Join(base, "at-once"), 0o700); err != nil {
			r.Fatal(err)
		}
		atOnce := opened(r, filepath.Join(base, "at-once"), log)
		defer atOnce.Close()
		if err := atOnce.Apply(all); err != nil {
			r.Fatal(err)
		}
		dir := base
		m := opened(r, dir, log)
		for crashes := 0; m.Seq() < uint64(len(all)); {
			switch rapid.SampledFrom([]string{"continue", "continue", "continue", "continue", "continue", "continue", "restart",
				"crash"}).Draw(r, "then") {
			case "continue":
				from := int(m.Seq()) - min(int(m.Seq()), rapid.IntRange(0, 5).Draw(r, "redelivered"))
				to := min(len(all), int(m.Seq())+rapid.SampledFrom([]int{1, 2, 9, 60}).Draw(r, "batch"))
				if err := m.Apply(all[from:to]); err != nil {
					r.Fatal(err)
				}
			case "restart":
				m.Close()
				m = opened(r, dir, log)
			case "crash":
				crashes++
				next := filepath.Join(base, fmt.Sprint("crash", crashes))
				m, dir = crashed(r, m, dir, next, log), next
			}
		}
		defer m.Close()
		if a, b := digestOf(t, atOnce), digestOf(t, m); a != b {
			r.Fatalf("digests differ: %s, at once %s", b, a)
		}
	})
}

func TestAnyOrderAndDuplicatesOfDurableEventsGiveTheSameMessages(t *testing.T) {
	t.Parallel()
	names, histories, want := recordings(t), map[string][]events.Event{}, map[string]string{}
	for _, name := range names {
		histories[name] = slices.DeleteFunc(recording(t, name), func(e events.Event) bool {
			return e.OpenCodeSeq < 0 || isDeletion(e)
		})
	}
	log := longEnough(t)
	expect.Property(t, func(r *rapid.T) {
		name := rapid.SampledFrom(names).Draw(r, "recording")
		inOrder := histories[name]
		shuffled := rapid.Permutation(append(slices.Clone(inOrder),
			rapid.SliceOfN(rapid.SampledFrom(inOrder), 0, 10).Draw(r, "again")...)).Draw(r, "order")
		if want[name] == "" {
			want[name] = messagesAfter(t, r, log, name, inOrder)
		}
		if got := messagesAfter(t, r, log, name, shuffled); got != want[name] {
			r.Fatalf("in order:\n%s\nshuffled:\n%s", want[name], got)
		}
	})
}

// isDeletion reports whether a session was deleted. A deletion ends the turns that are running at its time.
func isDeletion(e events.Event) bool { return e.Subject.Kind == "opencode.session.deleted" }

// messagesAfter returns the rows of messages and parts, without their times and sequences, after our message and the
// events.
func messagesAfter(t testing.TB, r *rapid.T, log *log.Log, name string, oc []events.Event) string {
	dir, err := os.MkdirTemp(expect.MemoryDir(t), "")
	if err != nil {
		r.Fatal(err)
	}
	m := opened(r, dir, log)
	defer m.Close()
	all := append(conversation(t, name)[:4:4], oc...)
	for i := range all {
		all[i].Seq = uint64(i + 1)
	}
	if err := m.Apply(all); err != nil {
		r.Fatal(err)
	}
	var out string
	for _, query := range []string{
		"SELECT json_array(id,chat,session,role,engine_message_status,user_message_status,ai_engine_message_id,parent_id,error_domain,error_payload,agent,provider,model,cost,tokens_input,tokens_output,finish,oc_seq,removed) AS row FROM messages ORDER BY id",
		"SELECT json_array(id,message,chat,oc_seq,removed,data) AS row FROM parts ORDER BY id",
	} {
		rows, err := store.List[struct{ Row string }](t.Context(), m.Model, "rows", query, nil)
		if err != nil {
			r.Fatal(err)
		}
		for _, row := range rows {
			out += row.Row + "\n"
		}
	}
	return out
}
