package web_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
	"pocketcoder/web/api"
	"pocketcoder/web/webtest"
)

func TestSlowQueriesOfOneAccountDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	eveID, eve := s.User(t, "eve", account.User)
	_, ann := s.User(t, "ann", account.User)
	chat := s.Chat(t, eve, "eve's")
	changes := s.Connect(t).Follow(t, ann, "chats/*")
	key := api.AccountKey(account.Identity{Collection: account.Users, Account: eveID})
	for range 2 { // all query slots of an account
		release, err := s.Web.API.AcquireQuerySlot(t.Context(), key)
		is.NoErr(err)
		defer release()
	}
	chats := webtest.RecordsPath("chats")
	for _, path := range []string{chats, chats + "?sort=title", chats + "/" + chat + "?expand=user",
		"/api/pocketcoder/ssh_keys", "/api/chats/" + chat + "/replay"} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		r, err := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
		is.NoErr(err)
		r.Header.Set("Authorization", eve)
		_, err = http.DefaultClient.Do(r)
		is.True(err != nil) // it waits for a query slot
		cancel()
	}
	status, _ := s.Call(t, eve, "GET", chats+"/"+chat, nil) // a quick read does not wait
	is.Equal(status, http.StatusOK)
	s.Rename(t, eve, chat, "renamed")
	status, _ = s.Call(t, ann, "GET", chats, nil)
	is.Equal(status, http.StatusOK)
	s.Chat(t, ann, "ann's")
	is.Equal(changes.Next(t).String(), "chats/* create ann's")
}

func TestLargeAnswerIsRefusedWhileOthersAreUnread(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	eveID, eve := s.User(t, "eve", account.User)
	_, ann := s.User(t, "ann", account.User)
	key, limit := api.AccountKey(account.Identity{Collection: account.Users, Account: eveID}), 128<<20
	is.True(s.Web.API.AddUnsent(key, limit))
	const large = "/api/openapi.json"
	refused, body := s.Get(t, eve, large)
	is.Equal(refused.StatusCode, http.StatusTooManyRequests)
	is.Equal(refused.Header.Get("Retry-After"), "10")
	expect.Contains(t, body, "at most 128 MiB at once")
	s.Chat(t, eve, "eve's") // a small answer
	for _, token := range []string{ann, ""} {
		answer, _ := s.Get(t, token, large)
		is.Equal(answer.StatusCode, http.StatusOK)
	}
	s.Web.API.RemoveUnsent(key, limit)
	answer, _ := s.Get(t, eve, large)
	is.Equal(answer.StatusCode, http.StatusOK)
}

func TestClientThatDoesNotReadIsDropped(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, root := s.User(t, "root", account.Admin)
	closed := make(chan struct{})
	server := httptest.NewUnstartedServer(s.Web.Routes())
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
	case <-time.After(2 * time.Minute):
		t.Fatal("the connection is still open after 2 minutes")
	}
}

func TestUncleanPathsAreNotFound(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	for _, path := range []string{"/api/./health", "/api/health/.", "/api//health", "/api/x/../health", "/api/health/..",
		"/api/pocketcoder/files/./", "/api/pocketcoder/files/./x", "/api/pocketcoder/artifact/."} {
		resp, body := s.Get(t, ann, path)
		is.Equal(resp.StatusCode, http.StatusNotFound) // path
		is.Equal(resp.Header.Get("Content-Type"), "application/json")
		expect.Contains(t, body, `"data":{}`)
	}
	resp, _ := s.Get(t, ann, "/api/pocketcoder/files/.")
	is.Equal(resp.StatusCode, http.StatusOK)
}
