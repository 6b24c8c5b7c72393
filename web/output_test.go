package web_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/chat"
	"pocketcoder/web/webtest"
)

func TestStoredOutputIsServedInRanges(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	chat := s.Chat(t, token, "mine")
	large := webtest.Noise(1 << 20)
	blob, err := s.Log.Blobs.Put(t.Context(), "exec1.stderr", bytes.NewReader(large))
	is.NoErr(err)
	s.AppendExecution(t, chat, "exec1", &events.ExecFinished{
		Stdout: events.Output{Bytes: 12, Text: "héllo\nworld"}, Stderr: events.Output{Bytes: blob.Size, Blob: &blob},
	})
	s.AppendExecution(t, chat, "exec2", &events.ExecFinished{Stdout: events.Output{Bytes: 3, Base64: []byte{0xff, 0, 1}}})
	for _, c := range []struct {
		path, ranged string
		status       int
		want, media  string
	}{
		{webtest.OutputOf("exec1"), "", 200, "héllo\nworld", "text/plain; charset=utf-8"},
		{webtest.OutputOf("exec1") + "?stream=stdout", "bytes=0-0", 206, "h", "text/plain; charset=utf-8"},
		{webtest.OutputOf("exec1"), "bytes=-5", 206, "world", "text/plain; charset=utf-8"},
		{webtest.OutputOf("exec1"), "bytes=7-", 206, "world", "text/plain; charset=utf-8"},
		{webtest.OutputOf("exec1"), "bytes=12-", 416, "", ""},
		{webtest.OutputOf("exec1"), "bytes=0-1,3-4", 200, "héllo\nworld", "text/plain; charset=utf-8"},
		{webtest.OutputOf("exec1"), "lines=1", 416, "", ""},
		{webtest.OutputOf("exec1") + "?stream=stderr", "", 200, string(large), "text/plain; charset=utf-8"},
		{webtest.OutputOf("exec1") + "?stream=stderr", "bytes=700000-700099", 206, string(large[700000:700100]), "text/plain; charset=utf-8"},
		{webtest.OutputOf("exec1") + "?stream=stderr", "bytes=-1", 206, string(large[1<<20-1:]), "text/plain; charset=utf-8"},
		{webtest.OutputOf("exec2"), "", 200, "\xff\x00\x01", "application/octet-stream"},
		{webtest.OutputOf("exec2") + "?stream=stderr", "", 200, "", "text/plain; charset=utf-8"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+c.path, nil)
		is.NoErr(err)
		r.Header.Set("Authorization", token)
		if c.ranged != "" {
			r.Header.Set("Range", c.ranged)
		}
		resp, err := http.DefaultClient.Do(r)
		is.NoErr(err)
		got, err := io.ReadAll(resp.Body)
		is.NoErr(err)
		resp.Body.Close()
		is.Equal(resp.StatusCode, c.status)
		is.Equal(resp.Header.Get("X-Content-Type-Options"), "nosniff")
		if c.status < 300 {
			is.True(string(got) == c.want)
			is.Equal(resp.Header.Get("Content-Type"), c.media)
			is.Equal(resp.ContentLength, int64(len(c.want)))
			is.Equal(resp.Header.Get("Accept-Ranges"), "bytes")
		}
	}
}

// testCommand is a command that writes to stdout as the exec path would publish and record it.
type testCommand struct {
	*webtest.System
	chat, exec string
	all        []byte
	stderr     int64
}

// write publishes p as fragments of at most 1,000 bytes. It omits those for which lost returns true.
func (r *testCommand) write(t testing.TB, p []byte, lost func(i int) bool) {
	t.Helper()
	for i := 0; len(p) > 0; i++ {
		n := min(len(p), 1000)
		d := log.Delta{Subject: events.ExecDeltaSubject(r.chat, r.exec), Type: log.ExecOutput, Stream: "stdout",
			Offset: int64(len(r.all)), Data: p[:n]}
		if !lost(i) {
			webtest.Check(t, r.Log.PublishDelta(d))
		}
		r.all, p = append(r.all, p[:n]...), p[n:]
		d.Stream, d.Offset, d.Data = "stderr", r.stderr, []byte("not this")
		webtest.Check(t, r.Log.PublishDelta(d))
		r.stderr += int64(len(d.Data))
	}
}

func discardCommand(int) bool { return false }

func TestOutputOfARunningCommandIsComplete(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	chat := s.Chat(t, token, "mine")
	for name, lost := range map[string]func(int) bool{
		"nothing is lost":        discardCommand,
		"the first is lost":      func(i int) bool { return i == 0 },
		"every seventh is lost":  func(i int) bool { return i%7 == 6 },
		"everything later is":    func(i int) bool { return i > 40 },
		"every fragment is lost": func(int) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			x := &testCommand{System: s, chat: chat, exec: events.NewID()}
			s.AppendExecution(t, chat, x.exec, nil)
			x.write(t, []byte("begun\n"), discardCommand)
			resp := s.Open(t, token, webtest.OutputOf(x.exec), "")
			is.Equal(resp.StatusCode, http.StatusOK)
			is.Equal(resp.Header.Get("Content-Type"), "text/plain; charset=utf-8")
			head := make([]byte, len("begun\n"))
			_, err := io.ReadFull(resp.Body, head) // while it runs
			is.NoErr(err)
			is.Equal(string(head), "begun\n")
			x.write(t, webtest.Noise(300<<10), lost)
			blob, err := s.Log.Blobs.Put(t.Context(), x.exec+".stdout", bytes.NewReader(x.all))
			is.NoErr(err)
			s.Append(t, chat, events.ExecFinished{Exec: events.NewID()}) // the end of another execution
			s.Append(t, chat, events.ExecFinished{Exec: x.exec, Stdout: events.Output{Bytes: blob.Size, Blob: &blob}})
			rest, err := io.ReadAll(resp.Body)
			is.NoErr(err)
			is.True(bytes.Equal(append(head, rest...), x.all))
		})
	}
}

func TestOutputOfALostCommandIsWhatWasReceived(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	chat := s.Chat(t, token, "mine")
	x := &testCommand{System: s, chat: chat, exec: events.NewID()}
	s.AppendExecution(t, chat, x.exec, nil)
	x.write(t, []byte("begun\n"), discardCommand)
	resp := s.Open(t, token, webtest.OutputOf(x.exec), "")
	head := make([]byte, len("begun\n"))
	_, err := io.ReadFull(resp.Body, head)
	is.NoErr(err)
	s.Append(t, chat, events.ExecFinished{Exec: x.exec, Reason: "lost", ExitCode: 125})
	rest, err := io.ReadAll(resp.Body)
	is.NoErr(err)
	is.Equal(len(rest), 0)
}

func TestOutputNeedsAccessToTheChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	id, ada := s.User(t, "ada", account.User)
	stranger, eve := s.User(t, "eve", account.User)
	_, agent := s.User(t, "agent", account.Agent)
	chatID := s.Chat(t, ada, "mine")
	s.AppendExecution(t, chatID, "exec1", &events.ExecFinished{Stdout: events.Output{Bytes: 1, Text: "x"}})
	s.AppendExecution(t, chatID, "exec2", nil)
	for _, exec := range []string{"exec1", "exec2", "nothing", "%2e%2e"} {
		is.Equal(s.Open(t, eve, webtest.OutputOf(exec), "").StatusCode, http.StatusNotFound)
		is.Equal(s.Open(t, "", webtest.OutputOf(exec), "").StatusCode, http.StatusUnauthorized)
	}
	is.Equal(s.Open(t, agent, webtest.OutputOf("exec1"), "").StatusCode, http.StatusOK)
	status, p := s.Call(t, ada, "GET", webtest.OutputOf("exec1")+"?stream=stdin", nil)
	is.Equal(status, http.StatusBadRequest)
	is.True(p["data"].(map[string]any)["stream"] != nil)

	identity, err := s.Accounts.Check(ada)
	is.NoErr(err)
	other := s.Chat(t, ada, "soon eve's")
	s.AppendExecution(t, other, "exec3", nil)
	running, given := s.Open(t, ada, webtest.OutputOf("exec2"), ""), s.Open(t, ada, webtest.OutputOf("exec3"), "")
	_, err = s.Chats.Update(t.Context(), chat.Update{Command: handlers.Command{Actor: events.ActorSystem}, Chat: other,
		User: &stranger})
	is.NoErr(err)
	_, err = io.ReadAll(given.Body)
	is.Equal(err, io.ErrUnexpectedEOF) // an aborted answer
	is.NoErr(s.Accounts.Revoke(t.Context(), account.RevokeSession{Account: id, Session: identity.Session}))
	_, err = io.ReadAll(running.Body)
	is.Equal(err, io.ErrUnexpectedEOF)
}

func TestDisconnectingReaderEndsNoCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	chat := s.Chat(t, token, "mine")
	s.AppendExecution(t, chat, "exec1", nil)
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL+webtest.OutputOf("exec1"), nil)
	is.NoErr(err)
	r.Header.Set("Authorization", token)
	resp, err := http.DefaultClient.Do(r)
	is.NoErr(err)
	leave()
	resp.Body.Close()
	s.Append(t, chat, events.ExecFinished{Exec: "exec1", Stdout: events.Output{Bytes: 3, Text: "end"}})
	status, body := s.Raw(t, token, "GET", webtest.OutputOf("exec1"), nil)
	is.Equal(fmt.Sprint(status, " ", string(body)), "200 end")
}
