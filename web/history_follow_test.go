package web_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestStreamEndsWithTheSession(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	id, token := s.User(t, "ada", account.Admin)
	chat := s.Chat(t, token, "mine")
	kept := s.Login(t, "ada")
	identity, err := s.Accounts.Check(token)
	is.NoErr(err)
	streams := []webtest.SSE{s.Stream(t, token, webtest.EventsOf(chat), ""), s.Stream(t, token, "/api/events", "")}
	open := s.Stream(t, kept, webtest.EventsOf(chat), "")
	is.NoErr(s.Accounts.Revoke(t.Context(), account.RevokeSession{Account: id, Session: identity.Session}))
	for _, stream := range streams {
		_, err := io.Copy(io.Discard, stream)
		is.NoErr(err) // it ended
	}
	s.Append(t, chat, events.TurnLost{Session: "ses_1"})
	for open.Next(t)["event"] != "turn.lost" { // the other session's goes on
	}
	is.Equal(s.Open(t, token, webtest.EventsOf(chat), "").StatusCode, http.StatusUnauthorized)
}

func TestFragmentsAreSentWithoutAnID(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	chat, other := s.Chat(t, token, "mine"), s.Chat(t, token, "another")
	stream := s.Stream(t, token, webtest.EventsOf(chat)+"?deltas=1", "")
	for stream.Next(t)["event"] != "caught-up" {
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan bool)
	go func() { // until it arrives: only later deltas are sent
		defer close(done)
		for ctx.Err() == nil {
			for _, d := range []log.Delta{
				{Subject: events.PartDeltaSubject(other), Type: "opencode.message.part.delta", Data: []byte(`{"delta":"not mine"}`)},
				{Subject: events.PartDeltaSubject(chat), Type: "opencode.message.part.delta", Data: []byte(`{"delta": "a<b"}`)},
				{Subject: events.ExecDeltaSubject(chat, "x1"), Type: log.ExecOutput, Stream: "stderr", Offset: 7, Data: []byte("\xff\n")},
			} {
				_ = s.Log.PublishDelta(d)
			}
			expect.Eventually(t, "a round trip", func() bool { return s.Conn.Flush() == nil })
		}
	}()
	want := map[string]bool{
		`{"subject":"delta.chat.` + chat + `.part","type":"opencode.message.part.delta","data":{"delta":"a\u003cb"}}`: true,
		`{"subject":"delta.exec.` + chat + `.x1","type":"exec.output","stream":"stderr","offset":7,"data":"/wo="}`:    true,
	}
	for left := 2; left > 0; {
		fields := stream.Next(t)
		_, hasID := fields["id"]
		is.True(!hasID)
		is.Equal(fields["event"], "delta")
		unseen, known := want[fields["data"]]
		is.True(known) // and nothing of the other chat
		if want[fields["data"]] = false; unseen {
			left--
		}
	}
	stop()
	<-done
	s.Append(t, chat, events.TurnLost{Session: "ses_1"})
	for fields := stream.Next(t); fields["event"] != "turn.lost"; fields = stream.Next(t) {
		is.Equal(fields["event"], "delta")
	}
}

// pipeListener is a listener whose connections buffer nothing.
type pipeListener struct {
	net.Listener
	dialed chan net.Conn
}

func (p pipeListener) Accept() (net.Conn, error) {
	conn, open := <-p.dialed
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func TestOnlyTheSlowReaderIsDropped(t *testing.T) {
	webtest.LeaveOutWhenShort(t)
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	chat := s.Chat(t, token, "mine")
	listener, served := pipeListener{s.Listener, make(chan net.Conn, 1)}, make(chan bool)
	handler := s.Web.Routes()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		close(served)
	})}
	go server.Serve(listener)
	defer close(listener.dialed)
	slow, end := net.Pipe()
	listener.dialed <- end
	_, err := fmt.Fprintf(slow, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n\r\n", webtest.EventsOf(chat), token)
	is.NoErr(err)
	_, err = io.ReadFull(slow, make([]byte, 100)) // the answer has begun, and the client stops reading
	is.NoErr(err)
	fast := s.Stream(t, token, webtest.EventsOf(chat), "")
	s.Append(t, chat, events.TurnLost{Session: "ses_1"})
	for fast.Next(t)["event"] != "turn.lost" {
	}
	<-served
	_, err = io.Copy(io.Discard, slow)
	is.NoErr(err) // the connection is closed
}

func TestEventStreamsPerAccountAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", "user")
	_, bob := s.User(t, "bob", "admin")
	chat := s.Chat(t, ada, "followed")
	for range 200 {
		is.Equal(s.Open(t, ada, webtest.EventsOf(chat), "").StatusCode, http.StatusOK)
	}
	resp := s.Open(t, ada, webtest.EventsOf(chat), "")
	is.Equal(resp.StatusCode, http.StatusTooManyRequests)
	is.Equal(resp.Header.Get("Retry-After"), "10")
	is.Equal(s.Open(t, bob, webtest.EventsOf(chat), "").StatusCode, http.StatusOK)
}
