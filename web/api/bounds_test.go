package api_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
)

// What somebody may take of what all share.

func TestNothingIsKeptForAGuest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	topics := make([]string, 100)
	for i := range topics {
		topics[i] = fmt.Sprintf("chats/%d?options=", i) + strings.Repeat("x", 2400)
	}
	f := s.connect(t).follow(t, "", topics...)
	is.Equal(s.web.Realtime.Followed(f.id), 0)
	f.follow(t, ann, topics...)
	is.Equal(s.web.Realtime.Followed(f.id), len(topics))
	status, _ := f.try(t, ann, append(topics, make([]string, 10)...)...) // empty ones are none
	is.Equal(status, http.StatusNoContent)
	for i := range topics {
		topics = append(topics, fmt.Sprintf("messages/%d?options=", i)+strings.Repeat("x", 2400))
	}
	status, answer := f.try(t, ann, topics...)
	is.Equal(status, http.StatusBadRequest)
	is.True(answer["data"].(map[string]any)["subscriptions"] != nil)
}

func TestClientsOfAnAddressAndOfAnAccountAreBounded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	_, bob := s.user(t, "bob", account.User)
	s.web.Realtime.HoldFewer(5, 10)
	connect := func() int {
		status, _ := s.ask(t, "", request("GET", "/api/realtime", "")) // from an address of its own each time
		return status
	}
	var clients []*follower
	for range 5 {
		clients = append(clients, s.connect(t))
	}
	status, answer := s.call(t, "", "GET", "/api/realtime", nil)
	is.Equal(status, http.StatusTooManyRequests)
	is.True(answer["message"] != "")
	is.Equal(connect(), http.StatusOK)
	for _, f := range clients {
		f.follow(t, ann, "chats/*")
	}
	for range 5 {
		clients = append(clients, s.connect(t).follow(t, ann, "chats/*")) // who has logged in counts for the account
	}
	f := s.connect(t)
	status, _ = f.try(t, ann, "chats/*")
	is.Equal(status, http.StatusTooManyRequests)
	f.follow(t, bob, "chats/*")
	clients[0].left(t, ann)
	s.connect(t).follow(t, ann, "chats/*")
}

func TestFilteredTopicsOfAnAccountAreBounded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	_, bob := s.user(t, "bob", account.User)
	filtered := func(first, n int) (topics []string) {
		for i := range n {
			topics = append(topics, "chats/*?options="+escape(fmt.Sprintf(`{"query":{"filter":"title = \"%d\""}}`, first+i)))
		}
		return topics
	}
	one, two := s.connect(t), s.connect(t)
	status, answer := one.try(t, ann, filtered(0, 51)...)
	is.Equal(status, http.StatusBadRequest)
	is.True(answer["data"].(map[string]any)["subscriptions"] != nil)
	one.follow(t, ann, filtered(0, 50)...)
	two.follow(t, ann, filtered(20, 30)...) // the same ones
	status, _ = two.try(t, ann, filtered(50, 1)...)
	is.Equal(status, http.StatusBadRequest)
	s.connect(t).follow(t, bob, filtered(50, 50)...)
	one.follow(t, ann, filtered(100, 50)[:20]...)
	s.chat(t, ann, "100")
	is.Equal(one.next(t).data.Record["title"], "100")
}

func TestOnesSlowQuestionsKeepNobodyElseWaiting(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	eveID, eve := s.user(t, "eve", account.User)
	_, ann := s.user(t, "ann", account.User)
	chat := s.chat(t, eve, "eve's")
	heard := s.connect(t).follow(t, ann, "chats/*")
	is.NoErr(s.web.API.Occupy(t.Context(), account.Users, eveID))
	for _, query := range []string{"?filter=" + escape(`title ~ "x"`), "?sort=title", "?expand=user", "/" + chat + "?expand=user"} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		r, err := http.NewRequestWithContext(ctx, "GET", s.URL+recordsOf("chats")+query, nil)
		is.NoErr(err)
		r.Header.Set("Authorization", eve)
		_, err = http.DefaultClient.Do(r)
		is.True(err != nil) // it waits for its turn
		cancel()
	}
	for _, path := range []string{"", "/" + chat} { // what is quick does not
		status, _ := s.call(t, eve, "GET", recordsOf("chats")+path, nil)
		is.Equal(status, http.StatusOK)
	}
	s.rename(t, eve, chat, "renamed")
	status, _ := s.call(t, ann, "GET", recordsOf("chats")+"?sort=title", nil)
	is.Equal(status, http.StatusOK)
	s.chat(t, ann, "ann's")
	is.Equal(heard.next(t).String(), "chats/* create ann's")
}

func TestAClientThatDoesNotReadItsAnswerIsDropped(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, root := s.user(t, "root", account.Admin)
	closed := make(chan struct{})
	server := httptest.NewUnstartedServer(s.web.Routes())
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		is.NoErr(c.(*net.TCPConn).SetWriteBuffer(1 << 10))
		return ctx
	}
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(closed)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	small := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1<<10) })
	}}
	conn, err := small.Dial("tcp", server.Listener.Addr().String())
	is.NoErr(err)
	defer conn.Close()
	fmt.Fprintf(conn, "GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\n\r\n", root)
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Fatal("it is still waited for after 20 s")
	}
}

func TestPathsThatAreNotCleanAreNotFound(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	for _, path := range []string{"/api/./health", "/api/health/.", "/api//health", "/api/x/../health", "/api/health/..", filesPath + "./", filesPath + "./x", artifactPath + "."} {
		resp, body := s.get(t, ann, path)
		is.Equal(resp.StatusCode, http.StatusNotFound) // path
		is.Equal(resp.Header.Get("Content-Type"), "application/json")
		is.True(strings.Contains(body, `"data":{}`))
	}
	resp, _ := s.get(t, ann, filesPath+".")
	is.Equal(resp.StatusCode, http.StatusOK)
}
