package log_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/log/blob"
)

func TestContentsOfArchivedChatsAreOffloaded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l, dir := eventstest.Log(t), t.TempDir()
	large := func(text string) json.RawMessage {
		return json.RawMessage(`{"n":"` + strings.Repeat(text, log.MaxInline/4) + `"}`)
	}
	add := func(e events.Event, err error) events.Event {
		t.Helper()
		is.NoErr(err)
		_, err = l.Append(t.Context(), e)
		is.NoErr(err)
		return e
	}
	contents := map[string][]string{} // that may be moved, by chat
	for _, chat := range []string{"old", "new"} {
		output, err := l.Blobs.Put(t.Context(), "x"+chat+".stdout", strings.NewReader("output of "+chat))
		is.NoErr(err)
		add(events.New(chat, events.UserActor("ann"), events.ExecFinished{Exec: "x" + chat,
			Stdout: events.Output{Bytes: output.Size, Blob: &output}}))
		diff := add(events.NewOpenCode(chat, "local", "evt_diff_"+chat, 1,
			events.OpenCode{Type: "session.diff", Properties: large("diff " + chat)}))
		add(events.NewOpenCode(chat, "local", "evt_message_"+chat, 2,
			events.OpenCode{Type: "message.updated", Properties: large("text " + chat)}))
		contents[chat] = []string{blob.HashName(diff.Data), output.Name}
	}
	archived := map[string]string{"old": "1", "gone": "1"}
	w := &log.OffloadWorker{Log: l, Dir: dir, After: time.Hour, Logger: slog.New(slog.DiscardHandler)}
	w.Archived = func(_ context.Context, since time.Time) (map[string]string, error) {
		is.True(time.Since(since) >= time.Hour)
		return archived, nil
	}
	files := func() (names []string) {
		all, err := os.ReadDir(dir)
		is.NoErr(err)
		for _, f := range all {
			names = append(names, f.Name())
		}
		return names
	}
	done := map[string]string{}
	is.NoErr(w.Pass(t.Context(), done))
	is.Equal(files(), contents["old"])
	is.Equal(done, map[string]string{"old": "1", "gone": "1"})
	n := 0
	_, err := l.Fold(t.Context(), events.AllEvents, 0, func(e events.Event) error { n++; return e.Malformed })
	is.NoErr(err)
	is.Equal(n, 6)

	archived["new"] = "1"
	is.NoErr(w.Pass(t.Context(), done))
	is.Equal(len(files()), 4)
}

func TestAChatThatCannotBeOffloadedDoesNotKeepTheOthers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l, dir := eventstest.Log(t), t.TempDir()
	for _, name := range []string{"a", "b"} {
		output, err := l.Blobs.Put(t.Context(), name, strings.NewReader(name))
		is.NoErr(err)
		e, err := events.New("chat-"+name, events.UserActor("ann"),
			events.ExecFinished{Exec: "x", Stdout: events.Output{Blob: &output}})
		is.NoErr(err)
		_, err = l.Append(t.Context(), e)
		is.NoErr(err)
	}
	is.NoErr(os.MkdirAll(dir+"/a/in-the-way", 0o700)) // of the file
	w := &log.OffloadWorker{Log: l, Dir: dir, Logger: slog.New(slog.DiscardHandler)}
	w.Archived = func(context.Context, time.Time) (map[string]string, error) {
		return map[string]string{"chat-a": "1", "chat-b": "1"}, nil
	}
	done := map[string]string{}
	err := w.Pass(t.Context(), done)
	is.True(err != nil)
	is.Equal(done, map[string]string{"chat-b": "1"}) // the next pass tries chat-a again
	body, err := os.ReadFile(dir + "/b")
	is.NoErr(err)
	is.Equal(string(body), "b")
}
