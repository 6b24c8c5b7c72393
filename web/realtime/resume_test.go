package realtime_test

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
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
	"pocketcoder/web"
	"pocketcoder/web/webtest"
)

// waitForDisconnect waits until the server has noticed that a client closed its connection.
func waitForDisconnect(f *webtest.Follower, t testing.TB, token string) {
	t.Helper()
	f.Close()
	expect.Eventually(t, "the connection is gone", func() bool {
		status, _ := f.Try(t, token, "\n") // a mistake, once the client is there
		return status == http.StatusNotFound
	})
}

func TestReconnectingClientGetsMissedChangesFirst(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	old, doomed := s.Chat(t, ann, "old"), s.Chat(t, ann, "doomed")
	f := s.Connect(t).Follow(t, ann, "chats/*", "chats/"+doomed)
	s.Rename(t, ann, old, "seen")
	is.Equal(f.Next(t).String(), "chats/* update seen")
	waitForDisconnect(f, t, ann)

	s.Rename(t, ann, old, "missed")
	s.Chat(t, ann, "new")
	s.Rename(t, ann, old, "missed too")
	s.Remove(t, ann, doomed)
	other := s.Connect(t).Follow(t, s.Login(t, "ann"), "chats/*") // of another session: it has missed nothing
	f = s.Connect(t).Follow(t, ann, "chats/*", "chats/"+doomed)
	s.Chat(t, ann, "end")
	var all, one []string
	for range 5 {
		if got := f.Next(t); got.Event == "chats/*" {
			all = append(all, got.String())
		} else {
			one = append(one, got.String())
		}
	}
	is.Equal(all, []string{"chats/* create new", "chats/* update missed too", "chats/* delete doomed",
		"chats/* create end"})
	is.Equal(one, []string{"chats/" + doomed + " delete doomed"})
	is.Equal(other.Next(t).String(), "chats/* create end")

	waitForDisconnect(f, t, ann)
	f = s.Connect(t).Follow(t, ann, "chats/*") // nothing happened
	s.Chat(t, ann, "later")
	is.Equal(f.Next(t).String(), "chats/* create later")
	is.Equal(other.Next(t).String(), "chats/* create later")
}

func TestReconnectingLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
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
			s.Chat(t, ann, fmt.Sprint(i))
		}
	}()
	conn, body := dial(s, t, ann, "chats/*")
	close(begun)
	for len(got) < chats {
		f, err := webtest.ReadFrame(body)
		if err == io.EOF { // the server sends nothing more
			conn, body = dial(s, t, ann, "chats/*")
			continue
		}
		is.NoErr(err)
		if got = append(got, f.String()); len(got)%7 == 0 {
			// all was read if the server has closed the connection too
			if err := conn.CloseWrite(); !errors.Is(err, syscall.ENOTCONN) {
				is.NoErr(err)
			}
		}
	}
	is.Equal(got, want)
	<-ended // the event of the last create can arrive before its answer
}

func TestReconnectingAfterManyChangesLosesNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	f := s.Connect(t).Follow(t, ann, "permissions/*")
	waitForDisconnect(f, t, ann)
	chat := s.Chat(t, ann, "one")
	var want []string
	for i := range 250 {
		want = append(want, s.AppendRequest(t, chat, fmt.Sprintf("per_%03d", i)))
	}
	f = s.Connect(t).Follow(t, ann, "permissions/*")
	var got []string
	for range want {
		got = append(got, f.Next(t).Data.Record["id"].(string))
	}
	is.Equal(got, want)
}

// A phone that changed networks leaves a connection behind that seems open for a long time.
func TestChangesSentToADeadConnectionAreSentAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	dead := s.Connect(t).Follow(t, ann, "chats/*")
	s.Chat(t, ann, "on its way")
	is.Equal(dead.Next(t).String(), "chats/* create on its way") // it is unknown whether the event arrived
	f := s.Connect(t).Follow(t, ann, "chats/*")
	is.Equal(f.Next(t).String(), "chats/* create on its way")
}

func TestSessionsResumeAfterARestart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	s.Chat(t, ann, "before")
	restarted := &webtest.System{Log: s.Log, Model: s.Model, Accounts: s.Accounts, Chats: s.Chats, Records: s.Records}
	restarted.Web = web.New(web.Options{Log: s.Log, Model: s.Model, Accounts: s.Accounts, Chats: s.Chats,
		Records: s.Records, Logger: s.Web.API.Logger})
	s.Run(t, restarted.Web.Realtime.Run)
	restarted.Server = httptest.NewServer(restarted.Web.Routes())
	t.Cleanup(restarted.Server.Close)
	t.Cleanup(restarted.Server.CloseClientConnections)
	expect.Eventually(t, "it runs", func() bool {
		return nextOrNothing(restarted.Connect(t).Follow(t, ann, "chats/*"), 100*time.Millisecond) == "chats/* create before"
	})
	// opened after the restart: there is nothing to resume
	late := restarted.Connect(t).Follow(t, s.Login(t, "ann"), "chats/*")
	s.Chat(t, ann, "after")
	is.Equal(late.Next(t).String(), "chats/* create after")
}

// nextOrNothing describes the next event, if there is one soon.
func nextOrNothing(f *webtest.Follower, d time.Duration) string {
	select {
	case got := <-f.Frames:
		return got.String()
	case <-time.After(d):
		return ""
	}
}

// dial opens a connection whose client does with it what it wants.
func dial(s *webtest.System, t testing.TB, token string, topics ...string) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	webtest.Check(t, err)
	t.Cleanup(func() { conn.Close() })
	webtest.Check(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	fmt.Fprint(conn, "GET /api/realtime HTTP/1.1\r\nHost: localhost\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	webtest.Check(t, err)
	body := bufio.NewReader(resp.Body)
	begin, err := webtest.ReadFrame(body)
	webtest.Check(t, err)
	(&webtest.Follower{S: s, ID: begin.ID}).Follow(t, token, topics...)
	return conn.(*net.TCPConn), body
}

func TestUnreadChangesAreSentAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	conn, _ := dial(s, t, ann, "chats/*")
	seen := s.Connect(t).Follow(t, s.Login(t, "ann"), "chats/*")
	s.Chat(t, ann, "unread")
	seen.Next(t)
	first := make([]byte, 1)
	_, err := conn.Read(first) // it has arrived; the rest is discarded
	is.NoErr(err)
	is.NoErr(conn.SetLinger(0)) // a reset, as from a program that was killed
	is.NoErr(conn.Close())
	f := s.Connect(t).Follow(t, ann, "chats/*")
	is.Equal(f.Next(t).String(), "chats/* create unread")
}

func TestOnlyTheSlowClientIsDropped(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	chat := s.Chat(t, ann, "one")
	topics := []string{"messages/*"}
	for i := range 39 {
		topics = append(topics, fmt.Sprintf("messages/*?%d", i)) // the same again
	}
	slow, body := dial(s, t, ann, topics...)
	fast := s.Connect(t).Follow(t, s.Login(t, "ann"), "messages/*")
	big := strings.Repeat("x", 50_000)
	const messages = 10 // 20 MB in 40 topics: more than the queue and what the kernel takes
	var last any
	for range messages {
		status, answer := s.Call(t, ann, "POST", "/api/collections/messages/records", map[string]any{
			"chat": chat, "role": "user", "parts": []any{map[string]string{"type": "text", "text": big}}})
		if status != http.StatusOK {
			t.Fatal(answer)
		}
		last = answer["id"]
		is.Equal(fast.Next(t).Data.Record["id"], last)
	}
	got, err := io.Copy(io.Discard, body)
	is.True(err == nil || !errors.Is(err, os.ErrDeadlineExceeded)) // it was disconnected
	is.True(got < messages*int64(len(topics)*len(big)))
	slow.Close()
	f := s.Connect(t).Follow(t, ann, "messages/*")
	for range messages - 1 {
		f.Next(t)
	}
	is.Equal(f.Next(t).Data.Record["id"], last) // it reconnects and has lost nothing
}

func TestOneChangeReachesAllClients(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	chat := s.Chat(t, ann, "one")
	clients, staff := make([]*webtest.Follower, 100), make([]string, 10)
	for i := range staff {
		_, staff[i] = s.User(t, fmt.Sprint("admin", i), account.Admin)
	}
	for i := range clients {
		clients[i] = s.Connect(t).Follow(t, staff[i%len(staff)], "chats/"+chat, "messages/*", "permissions/*")
		for len(clients[i].Frames) > 0 { // of the sessions before
			<-clients[i].Frames
		}
	}
	s.Rename(t, ann, chat, "told")
	for _, f := range clients {
		f.Until(t, "title", "told")
	}
}
