package api_test

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
)

func TestStreamEndsWithTheSession(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	id, token := s.user(t, "ada", account.Admin)
	chat := s.chat(t, token, "mine")
	kept := s.login(t, "ada")
	who, err := s.accounts.Check(token)
	is.NoErr(err)
	streams := []sse{s.stream(t, token, eventsOf(chat), ""), s.stream(t, token, "/api/events", "")}
	open := s.stream(t, kept, eventsOf(chat), "")
	is.NoErr(s.accounts.Revoke(t.Context(), account.RevokeSession{Account: id, Session: who.Session}))
	for _, stream := range streams {
		_, err := io.Copy(io.Discard, stream)
		is.NoErr(err) // it ended
	}
	s.append(t, chat, events.TurnLost{Session: "ses_1"})
	for open.next(t)["event"] != "turn.lost" { // the other session's goes on
	}
	is.Equal(s.open(t, token, eventsOf(chat), "").StatusCode, http.StatusUnauthorized)
}

func TestFragmentsComeBetweenTheEventsWithoutAnID(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, token := s.user(t, "ada", account.User)
	chat, other := s.chat(t, token, "mine"), s.chat(t, token, "another")
	stream := s.stream(t, token, eventsOf(chat)+"?deltas=1", "")
	for stream.next(t)["event"] != "caught-up" {
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan bool)
	go func() { // until it is heard: only what comes from then on is sent
		defer close(done)
		for ctx.Err() == nil {
			for _, d := range []log.Delta{
				{Subject: events.MessageDeltaSubject(other, "msg_1", "prt_1"), Type: "opencode.message.part.delta", Data: []byte(`{"delta":"not mine"}`)},
				{Subject: events.MessageDeltaSubject(chat, "msg_1", "prt_1"), Type: "opencode.message.part.delta", Data: []byte(`{"delta": "a<b"}`)},
				{Subject: events.ExecDeltaSubject(chat, "x1"), Type: log.ExecOutput, Stream: "stderr", Offset: 7, Data: []byte("\xff\n")},
			} {
				_ = s.log.PublishDelta(d)
			}
			eventually(t, "a round trip", func() bool { return s.conn.Flush() == nil })
		}
	}()
	want := map[string]bool{
		`{"subject":"delta.chat.` + chat + `.msg_1.prt_1","type":"opencode.message.part.delta","data":{"delta":"a\u003cb"}}`: true,
		`{"subject":"delta.exec.` + chat + `.x1","type":"exec.output","stream":"stderr","offset":7,"data":"/wo="}`:           true,
	}
	for left := 2; left > 0; {
		fields := stream.next(t)
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
	s.append(t, chat, events.TurnLost{Session: "ses_1"})
	for fields := stream.next(t); fields["event"] != "turn.lost"; fields = stream.next(t) {
		is.Equal(fields["event"], "delta")
	}
}

// pipes is a listener whose connections keep nothing that was not read.
type pipes struct {
	net.Listener
	dialed chan net.Conn
}

func (p pipes) Accept() (net.Conn, error) {
	conn, open := <-p.dialed
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func TestSlowReaderIsDroppedAndSlowsNobody(t *testing.T) {
	leaveOutWhenShort(t)
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, token := s.user(t, "ada", account.User)
	chat := s.chat(t, token, "mine")
	listener, served := pipes{s.Listener, make(chan net.Conn, 1)}, make(chan bool)
	handler := s.web.Routes()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		close(served)
	})}
	go server.Serve(listener)
	defer close(listener.dialed)
	slow, end := net.Pipe()
	listener.dialed <- end
	_, err := fmt.Fprintf(slow, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n\r\n", eventsOf(chat), token)
	is.NoErr(err)
	_, err = io.ReadFull(slow, make([]byte, 100)) // the answer has begun, and nobody reads on
	is.NoErr(err)
	fast := s.stream(t, token, eventsOf(chat), "")
	s.append(t, chat, events.TurnLost{Session: "ses_1"})
	for fast.next(t)["event"] != "turn.lost" {
	}
	<-served
	_, err = io.Copy(io.Discard, slow)
	is.NoErr(err) // the connection is closed
}
