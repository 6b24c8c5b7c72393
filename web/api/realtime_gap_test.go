package api_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/web"
)

// left waits until a client that closed its connection is known to have done so.
func (f *follower) left(t testing.TB, token string) {
	t.Helper()
	f.close()
	eventually(t, "the connection is gone", func() bool {
		status, _ := f.try(t, token, "\n") // a mistake, once the client is there
		return status == http.StatusNotFound
	})
}

func TestChangesDuringTheGapComeFirst(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	old, doomed := s.chat(t, ann, "old"), s.chat(t, ann, "doomed")
	f := s.connect(t).follow(t, ann, "chats/*", "chats/"+doomed)
	s.rename(t, ann, old, "seen")
	is.Equal(f.next(t).String(), "chats/* update seen")
	f.left(t, ann)

	s.rename(t, ann, old, "missed")
	s.chat(t, ann, "new")
	s.rename(t, ann, old, "missed too")
	s.remove(t, ann, doomed)
	other := s.connect(t).follow(t, s.login(t, "ann"), "chats/*") // of another session: it has missed nothing
	f = s.connect(t).follow(t, ann, "chats/*", "chats/"+doomed)
	s.chat(t, ann, "end")
	var all, one []string
	for range 5 {
		if got := f.next(t); got.event == "chats/*" {
			all = append(all, got.String())
		} else {
			one = append(one, got.String())
		}
	}
	is.Equal(all, []string{"chats/* create new", "chats/* update missed too", "chats/* delete doomed", "chats/* create end"})
	is.Equal(one, []string{"chats/" + doomed + " delete doomed"})
	is.Equal(other.next(t).String(), "chats/* create end")

	f.left(t, ann)
	f = s.connect(t).follow(t, ann, "chats/*") // nothing happened
	s.chat(t, ann, "later")
	is.Equal(f.next(t).String(), "chats/* create later")
	is.Equal(other.next(t).String(), "chats/* create later")
}

func TestNothingIsLostOrTwiceWhileReconnecting(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	const chats = 120
	var want, got []string
	for i := range chats {
		want = append(want, fmt.Sprintf("chats/* create %d", i))
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		<-begun
		for i := range chats {
			s.chat(t, ann, fmt.Sprint(i))
		}
	}()
	conn, body := s.dial(t, ann, "chats/*")
	close(begun)
	for len(got) < chats {
		f, err := readFrame(body)
		if err == io.EOF { // the server has said its last
			conn, body = s.dial(t, ann, "chats/*")
			continue
		}
		is.NoErr(err)
		if got = append(got, f.String()); len(got)%7 == 0 {
			is.NoErr(conn.CloseWrite())
		}
	}
	is.Equal(got, want)
	<-ended // the last create is heard of before it is answered
}

func TestALargeGapComesWhole(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	f := s.connect(t).follow(t, ann, "permissions/*")
	f.left(t, ann)
	chat := s.chat(t, ann, "one")
	var want []string
	for i := range 250 {
		want = append(want, s.asked(t, chat, fmt.Sprintf("per_%03d", i)))
	}
	f = s.connect(t).follow(t, ann, "permissions/*")
	var got []string
	for range want {
		got = append(got, f.next(t).data.Record["id"].(string))
	}
	is.Equal(got, want)
}

// A phone that changed networks leaves a connection behind that seems open for a long time.
func TestWhatWentToADeadConnectionComesAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	dead := s.connect(t).follow(t, ann, "chats/*")
	s.chat(t, ann, "on its way")
	is.Equal(dead.next(t).String(), "chats/* create on its way") // nobody knows whether it arrived
	f := s.connect(t).follow(t, ann, "chats/*")
	is.Equal(f.next(t).String(), "chats/* create on its way")
}

func TestSessionsGoOnAfterARestart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	s.chat(t, ann, "before")
	restarted := &system{log: s.log, model: s.model, accounts: s.accounts, handlers: s.handlers}
	restarted.web = web.New(web.Options{Log: s.log, Model: s.model, Accounts: s.accounts, Handlers: s.handlers, Logger: s.web.API.Logger})
	s.run(t, restarted.web.Realtime.Run)
	restarted.Server = httptest.NewServer(restarted.web.Routes())
	t.Cleanup(restarted.Server.Close)
	t.Cleanup(restarted.Server.CloseClientConnections)
	eventually(t, "it runs", func() bool {
		return restarted.connect(t).follow(t, ann, "chats/*").nextWithin(100*time.Millisecond) == "chats/* create before"
	})
	late := restarted.connect(t).follow(t, s.login(t, "ann"), "chats/*") // opened since: there is nothing to go on from
	s.chat(t, ann, "after")
	is.Equal(late.next(t).String(), "chats/* create after")
}

// nextWithin describes the next event, if there is one soon.
func (f *follower) nextWithin(d time.Duration) string {
	select {
	case got := <-f.frames:
		return got.String()
	case <-time.After(d):
		return ""
	}
}

// dial opens a connection whose client does with it what it wants.
func (s *system) dial(t testing.TB, token string, topics ...string) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	check(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	fmt.Fprint(conn, "GET /api/realtime HTTP/1.1\r\nHost: localhost\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	check(t, err)
	body := bufio.NewReader(resp.Body)
	begin, err := readFrame(body)
	check(t, err)
	(&follower{s: s, id: begin.id}).follow(t, token, topics...)
	return conn.(*net.TCPConn), body
}

func TestWhatAClientLeftUnreadComesAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	conn, _ := s.dial(t, ann, "chats/*")
	seen := s.connect(t).follow(t, s.login(t, "ann"), "chats/*")
	s.chat(t, ann, "unread")
	seen.next(t)
	first := make([]byte, 1)
	_, err := conn.Read(first) // it has arrived, and the rest of it is thrown away
	is.NoErr(err)
	is.NoErr(conn.SetLinger(0)) // a reset, as from a program that was killed
	is.NoErr(conn.Close())
	f := s.connect(t).follow(t, ann, "chats/*")
	is.Equal(f.next(t).String(), "chats/* create unread")
}

func TestASlowClientIsDroppedAndAFastOneIsNot(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	chat := s.chat(t, ann, "one")
	topics := []string{"messages/*"}
	for i := range 39 {
		topics = append(topics, fmt.Sprintf("messages/*?%d", i)) // the same again
	}
	slow, body := s.dial(t, ann, topics...)
	fast := s.connect(t).follow(t, s.login(t, "ann"), "messages/*")
	big := strings.Repeat("x", 50_000)
	const messages = 10 // 20 MB in 40 topics: more than the queue and what the kernel takes
	var last any
	for range messages {
		status, answer := s.call(t, ann, "POST", "/api/collections/messages/records", map[string]any{
			"chat": chat, "role": "user", "parts": []any{map[string]string{"type": "text", "text": big}}})
		if status != http.StatusOK {
			t.Fatal(answer)
		}
		last = answer["id"]
		is.Equal(fast.next(t).data.Record["id"], last)
	}
	got, err := io.Copy(io.Discard, body)
	is.True(err == nil || !errors.Is(err, os.ErrDeadlineExceeded)) // it was disconnected
	is.True(got < messages*int64(len(topics)*len(big)))
	slow.Close()
	f := s.connect(t).follow(t, ann, "messages/*")
	for range messages - 1 {
		f.next(t)
	}
	is.Equal(f.next(t).data.Record["id"], last) // it comes again, and has lost nothing
}

func TestAThousandClientsHearOfOneChange(t *testing.T) {
	leaveOutWhenShort(t)
	t.Parallel()
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	chat := s.chat(t, ann, "one")
	clients, staff := make([]*follower, 1000), make([]string, 10) // each with as many clients as it may have
	for i := range staff {
		_, staff[i] = s.user(t, fmt.Sprint("admin", i), account.Admin)
	}
	for i := range clients {
		clients[i] = s.connect(t).follow(t, staff[i%len(staff)], "chats/"+chat, "messages/*", "permissions/*")
		for len(clients[i].frames) > 0 { // of the sessions before
			<-clients[i].frames
		}
	}
	s.rename(t, ann, chat, "told")
	for _, f := range clients {
		f.until(t, "title", "told")
	}
}
