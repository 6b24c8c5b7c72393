package erase

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/cmd/backup"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/events/archive"
	"pocketcoder/events/log"
	"pocketcoder/events/log/blob"
	"pocketcoder/events/recovery"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
)

const canary = "erase-this-text"

// opened starts a server on the log of a data directory, and opens the log.
func opened(t testing.TB, d datadir.Dir, fn func(*nats.Conn, *log.Log)) {
	t.Helper()
	is := is.New(t)
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	is.NoErr(err)
	server, nc, err := backup.OpenStore(t.Context(), d.Path("nats"), keys, true)
	is.NoErr(err)
	defer server.Close()
	defer nc.Close()
	l, err := log.Open(t.Context(), nc, log.DefaultOptions, secret.NewRedactor())
	is.NoErr(err)
	fn(nc, l)
}

// installation makes a data directory with two chats that share a large body. chat1 has the text to erase.
func installation(t testing.TB) datadir.Dir {
	t.Helper()
	is := is.New(t)
	d := datadir.Dir(filepath.Join(expect.MemoryDir(t), "data"))
	release, err := d.Open()
	is.NoErr(err)
	release()
	opened(t, d, func(nc *nats.Conn, l *log.Log) {
		ctx := t.Context()
		add := func(chat string, data events.Data) {
			e, err := events.New(chat, events.UserActor("u1"), data)
			is.NoErr(err)
			_, err = l.Append(ctx, e)
			is.NoErr(err)
		}
		shared := strings.Repeat("shared ", log.MaxInline/6)
		for _, chat := range []string{"chat1", "chat2"} {
			text := map[string]string{"chat1": canary, "chat2": "other"}[chat]
			add(chat, events.ChatCreated{Title: text, User: "u1", Engine: "local"})
			add(chat, events.SessionBound{Session: "ses_" + chat, Directory: "/w"})
			add(chat, events.MessageSubmitted{Message: "m",
				Parts: []events.Part{{Type: "text", Text: strings.Repeat(text+" ", log.MaxInline/5)}}})
			add(chat, events.MessageSubmitted{Message: "shared", Parts: []events.Part{{Type: "text", Text: shared}}})
			blob, err := l.Blobs.Put(ctx, "exec-"+chat+".stdout", strings.NewReader(strings.Repeat(text+"\n", 30_000)))
			is.NoErr(err)
			add(chat, events.ExecFinished{Exec: "exec-" + chat, Status: "completed",
				Stdout: events.Output{Bytes: blob.Size, Blob: &blob}})
			o, err := events.NewOpenCode(chat, "local", "evt_"+chat, 3, events.OpenCode{
				Type: "session.updated", Form: 1, Properties: []byte(`{"sessionID":"ses_` + chat + `","info":{"id":"ses_` + chat + `","title":"` + text + `"}}`),
			})
			is.NoErr(err)
			_, err = l.Append(ctx, o)
			is.NoErr(err)
			js, err := jetstream.New(nc)
			is.NoErr(err)
			for _, subject := range []string{events.PartDeltaSubject(chat), events.ExecDeltaSubject(chat, "x")} {
				_, err = js.Publish(ctx, subject, []byte(`{"delta":"`+text+`"}`))
				is.NoErr(err)
			}
			c, err := js.CreateOrUpdateConsumer(ctx, "EVENTS", jetstream.ConsumerConfig{Durable: "gate",
				AckPolicy: jetstream.AckAllPolicy})
			is.NoErr(err)
			m, err := c.Next()
			is.NoErr(err)
			is.NoErr(m.DoubleAck(ctx))
		}
		secrets, err := secret.Open(ctx, nc, 1)
		is.NoErr(err)
		is.NoErr(secrets.Put(ctx, "password.alice", []byte("hash")))
	})
	is.NoErr(os.WriteFile(d.Path("readmodel.v1.db"), []byte(canary), 0o600))
	is.NoErr(os.WriteFile(d.Path("readmodel.v1.db-wal"), []byte(canary), 0o600))
	openCode := d.Path("opencode", "data", "opencode")
	is.NoErr(os.MkdirAll(filepath.Join(openCode, "log"), 0o700))
	is.NoErr(os.WriteFile(filepath.Join(openCode, "log", "dev.log"), []byte(canary), 0o600))
	db := openCodeDatabase(t, d)
	defer db.Close()
	for _, statement := range []string{
		"PRAGMA journal_mode=WAL", "CREATE TABLE session(id TEXT PRIMARY KEY, parent_id TEXT, title TEXT)",
		"CREATE TABLE part(id TEXT, session_id TEXT, data TEXT)",
		"CREATE TABLE event(id TEXT, aggregate_id TEXT, data TEXT)",
		"INSERT INTO session VALUES('ses_chat1',NULL,'" + canary + "'),('ses_child','ses_chat1','" + canary +
			"'),('ses_chat2',NULL,'other')",
		"INSERT INTO part VALUES('p1','ses_child','" + canary + "'),('p2','ses_chat2','other')",
		"INSERT INTO event VALUES('e1','ses_chat1','" + canary + "'),('e2','ses_chat2','other')",
	} {
		_, err := db.Exec(statement)
		is.NoErr(err)
	}
	return d
}

func TestTheFilesOfAnErasedChatAreRemoved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d, dir := installation(t), t.TempDir()
	opened(t, d, func(_ *nats.Conn, l *log.Log) {
		for _, chat := range []string{"chat1", "chat2"} {
			moved, err := l.Blobs.Offload(t.Context(), "exec-"+chat+".stdout", dir)
			is.NoErr(err)
			is.True(moved)
		}
	})
	_, err := Run(t.Context(), options(d))
	is.NoErr(err)
	is.Equal(files(t, dir, canary), nil)
	expect.Contains(t, expect.ReadFile(t, filepath.Join(dir, "exec-chat2.stdout")), "other\n")
}

func openCodeDatabase(t testing.TB, d datadir.Dir) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", d.Path("opencode", "data", "opencode", "opencode.db"))
	is.New(t).NoErr(err)
	return db
}

func options(d datadir.Dir) Options {
	return Options{Data: d, Chat: "chat1", Actor: events.UserActor("operator"), Command: "pocketcoder admin erase chat1",
		Progress: func(string, uint64, uint64) {}}
}

// messages are all messages of all streams, by stream and sequence.
func messages(t testing.TB, nc *nats.Conn) map[string]archive.Entry {
	t.Helper()
	is := is.New(t)
	all := map[string]archive.Entry{}
	names, err := archive.Names(t.Context(), nc)
	is.NoErr(err)
	is.Equal(names, []string{"DELTAS", "EVENTS", "KV_SECRETS", "OBJ_BLOBS"})
	for _, name := range names {
		s := archive.Stream{Conn: nc, Name: name}
		info, err := s.Info(t.Context())
		is.NoErr(err)
		is.NoErr(s.Read(t.Context(), 1, info.State.Last, func(e archive.Entry) error {
			all[fmt.Sprint(name, " ", e.Seq)] = e
			return nil
		}))
	}
	return all
}

// files returns those below a directory that contain a text.
func files(t testing.TB, dir, text string) (list []string) {
	t.Helper()
	is.New(t).NoErr(filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			body, readErr := os.ReadFile(path)
			if err = readErr; bytes.Contains(body, []byte(text)) {
				list = append(list, path)
			}
		}
		return err
	}))
	return list
}

func TestTheTextOfAnErasedChatIsGoneAndAllElseIsTheSame(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := installation(t)
	var before map[string]archive.Entry
	var bodies []string // of chat1's events
	opened(t, d, func(nc *nats.Conn, l *log.Log) {
		before = messages(t, nc)
		_, err := l.Fold(t.Context(), events.ChatFilter("chat1"), 0, func(e events.Event) error {
			bodies = append(bodies, string(e.Data))
			return e.Malformed
		})
		is.NoErr(err)
	})
	is.True(len(files(t, string(d), canary)) > 5)
	result, err := Run(t.Context(), options(d))
	is.NoErr(err)
	is.Equal(result, Result{Chat: "chat1", Events: 6, Deltas: 2, Blobs: 2, Sessions: 1})
	is.Equal(files(t, string(d), canary), nil)
	release, err := d.Open()
	is.NoErr(err)
	release()

	changed := 0
	opened(t, d, func(nc *nats.Conn, l *log.Log) {
		after := messages(t, nc)
		is.Equal(len(after), len(before)+1) // and the event that says so
		for name, old := range before {
			e := after[name]
			is.Equal(e.Stored, old.Stored) // name
			is.Equal(e.Subject, old.Subject)
			is.Equal(string(e.Header), string(old.Header))
			if !bytes.Equal(e.Body, old.Body) {
				changed++
			}
			if strings.Contains(e.Subject, "chat2") || strings.HasPrefix(name, "KV_") {
				is.Equal(string(e.Body), string(old.Body))
			}
		}
		is.Equal(changed, 6+2+2+strings.Count(fmt.Sprint(keysWith(before, "$O.BLOBS.C.")), "of-chat1"))
		n := 0
		_, err = l.Fold(t.Context(), events.ChatFilter("chat1"), 0, func(e events.Event) error {
			if n < len(bodies) {
				mark, ok := events.ReadErased(e.Data)
				is.True(ok && e.IsErased())
				want, _ := events.ReadErased(events.Erase([]byte(bodies[n])))
				is.Equal(mark, want) // of the body itself, also of one in BLOBS
			} else {
				is.NoErr(e.Malformed)
				data, err := events.Decode(e)
				is.NoErr(err)
				is.Equal(data, events.ChatErased{User: "u1", Events: 6})
			}
			n++
			return nil
		})
		is.NoErr(err)
		is.Equal(n, len(bodies)+1)
		// the shared body is there
		_, err = l.Fold(t.Context(), events.ChatFilter("chat2"), 0, func(e events.Event) error { return e.Malformed })
		is.NoErr(err)
		_, err := l.Blobs.Open(t.Context(), "exec-chat1.stdout")
		is.True(errors.Is(err, blob.ErrNotFound))
		b, err := l.Blobs.PutByHash(t.Context(), []byte(bodies[2])) // the same body can be stored again
		is.NoErr(err)
		r, err := l.Blobs.Open(t.Context(), b.Name)
		is.NoErr(err)
		r.Close()
		js, err := jetstream.New(nc)
		is.NoErr(err)
		c, err := js.Consumer(t.Context(), "EVENTS", "gate")
		is.NoErr(err)
		is.Equal(c.CachedInfo().AckFloor.Stream, uint64(2)) // workers go on where they were
	})
	db := openCodeDatabase(t, d)
	defer db.Close()
	for table, want := range map[string]int{"session": 1, "part": 1, "event": 1} {
		var n int
		is.NoErr(db.QueryRow("SELECT count(*) FROM " + table).Scan(&n))
		is.Equal(n, want) // table
	}
	repeated, err := Run(t.Context(), options(d))
	is.NoErr(err)
	is.Equal(repeated.Blobs+repeated.Sessions, 0)
}

func TestAnOlderCopyThatIsPutBackAfterAnErasureIsALoss(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d, backedUp := installation(t), t.TempDir()
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	is.NoErr(err)
	start := func() *recovery.Guard {
		server, nc, err := backup.OpenStore(t.Context(), d.Path("nats"), keys, false)
		is.NoErr(err)
		defer server.Close()
		defer nc.Close()
		js, err := jetstream.New(nc)
		is.NoErr(err)
		guard, err := recovery.Open(string(d), slog.New(slog.DiscardHandler))
		is.NoErr(err)
		is.NoErr(guard.Observe(t.Context(), js))
		return guard
	}
	is.Equal(len(start().Losses()), 0)
	is.NoErr(os.CopyFS(backedUp, os.DirFS(d.Path("nats"))))
	_, err = Run(t.Context(), options(d))
	is.NoErr(err)
	erased := start()
	is.Equal(len(erased.Losses()), 0)
	is.Equal(erased.Uncertain(), uint64(0))

	is.NoErr(os.RemoveAll(d.Path("nats")))
	is.NoErr(os.CopyFS(d.Path("nats"), os.DirFS(backedUp)))
	put := start()
	is.Equal(len(put.Losses()), 1)
	is.Equal(put.Losses()[0].Sequences.Count(), uint64(1)) // the event of the erasure
	is.True(put.Uncertain() > 0)
}

// keysWith counts the chunks of blobs, by whether chat1 alone has them.
func keysWith(all map[string]archive.Entry, prefix string) (list []string) {
	for _, e := range all {
		if strings.HasPrefix(e.Subject, prefix) && bytes.Contains(e.Body, []byte(canary)) {
			list = append(list, "of-chat1")
		}
	}
	return list
}

func TestAnUnknownChatChangesNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := installation(t)
	o := options(d)
	o.Chat = "chat3"
	_, err := Run(t.Context(), o)
	is.True(errors.Is(err, errNoChat))
	_, err = os.Stat(d.Path(written))
	is.True(errors.Is(err, fs.ErrNotExist))
	_, err = os.Stat(d.Path("readmodel.v1.db"))
	is.NoErr(err)
	release, err := d.Open()
	is.NoErr(err)
	_, err = Run(t.Context(), options(d))
	is.True(err != nil)
	expect.Contains(t, err.Error(), "it is in use by another process")
	release()
}

// The files of a loss were copied whole, with the text of all chats.
func TestCopiesOfDamagedFilesAreRemovedFirst(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := installation(t)
	for _, copied := range []string{d.Path("lost-events", "1"), d.Path("opencode", "damaged", "1")} {
		is.NoErr(os.MkdirAll(copied, 0o700))
		_, err := Run(t.Context(), options(d))
		is.True(err != nil)
		expect.Contains(t, err.Error(), copied)
		is.NoErr(os.Remove(copied))
	}
	_, err := Run(t.Context(), options(d))
	is.NoErr(err)
}

// A process that is killed at any step leaves the old log, or a directory that "up" refuses until the command was run
// again.
func TestAKilledErasureIsCompletedByTheNextRun(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := installation(t)
	for _, step := range []string{"EVENTS", "read back EVENTS", "OBJ_BLOBS"} {
		killed(t, step, d)
		release, err := d.Open()
		is.NoErr(err)
		release()
		opened(t, d, func(_ *nats.Conn, l *log.Log) {
			_, err := l.Fold(t.Context(), events.AllEvents, 0, func(e events.Event) error { return e.Malformed })
			is.NoErr(err) // the old log is whole
		})
	}
	for _, step := range []string{"replace the log", "remove the old log"} {
		killed(t, step, d)
		_, err := d.Open()
		is.True(err != nil)
		expect.Contains(t, err.Error(), "the erasure of it is unfinished; run it again: pocketcoder admin erase chat1")
		o := options(d)
		o.Command = "pocketcoder admin erase chat2"
		_, err = Run(t.Context(), o)
		is.True(err != nil) // the other one first
	}
	_, err := Run(t.Context(), options(d))
	is.NoErr(err)
	is.Equal(files(t, string(d), canary), nil)
	release, err := d.Open()
	is.NoErr(err)
	release()
	opened(t, d, func(_ *nats.Conn, l *log.Log) {
		n := 0
		_, err = l.Fold(t.Context(), events.ChatFilter("chat1"), 0, func(e events.Event) error { n++; return nil })
		is.NoErr(err)
		is.Equal(n, 7)
	})
}

// killed runs an erasure in a process of its own, which is killed in a step.
func killed(t *testing.T, step string, d datadir.Dir) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledProcess$")
	cmd.Env = append(os.Environ(), "KILLED="+step+","+string(d))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the erasure was not killed in step %q: %v\n%s", step, err, &out)
	}
}

func TestKilledProcess(t *testing.T) {
	args := strings.Split(os.Getenv("KILLED"), ",")
	if len(args) != 2 {
		t.Skip("a process of another test")
	}
	o := options(datadir.Dir(args[1]))
	o.Progress = func(step string, done, total uint64) {
		if step == args[0] && 2*done >= total || step == args[0] && total == 1 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	_, err := Run(t.Context(), o)
	t.Fatal(err)
}

// An erasure names the delegates of the chat, whose text stays, also if it is repeated.
func TestAnErasureNamesTheDelegates(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := installation(t)
	opened(t, d, func(_ *nats.Conn, l *log.Log) {
		for delegate, parent := range map[string]string{"delegate1": "chat1", "delegate2": "chat2", "below": "delegate1"} {
			e, err := events.New(delegate, "chat:"+parent, events.ChatCreated{Parent: &events.Parent{Chat: parent, Root: "chat1"}})
			is.NoErr(err)
			_, err = l.Append(t.Context(), e)
			is.NoErr(err)
		}
	})
	for range 2 {
		result, err := Run(t.Context(), options(d))
		is.NoErr(err)
		is.Equal(result.Delegates, []string{"delegate1"})
	}
	o := options(d)
	o.Chat, o.Command = "delegate1", "pocketcoder admin erase delegate1"
	result, err := Run(t.Context(), o)
	is.NoErr(err)
	is.Equal(result.Delegates, []string{"below"})
}
