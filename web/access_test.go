package web_test

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
	"pocketcoder/web/api"
	"pocketcoder/web/webtest"
)

func TestPortIsForItsPersonOnly(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	id, owner := s.User(t, "ada", account.User)
	eve, stranger := s.User(t, "eve", account.User)
	_, agent := s.User(t, "agent", account.Agent)
	_, admin := s.User(t, "root", account.Admin)
	chatID, other := s.Chat(t, owner, "mine"), s.Chat(t, owner, "other")
	port := s.Serve(t, chatID, http.HandlerFunc(echo))
	s.Serve(t, other, http.HandlerFunc(echo))
	path := fmt.Sprintf("/api/chats/%s/ports/%d", chatID, port)
	for token, want := range map[string]int{owner: 200, admin: 200, agent: 404, stranger: 404, "": 401} {
		status, _ := s.Raw(t, token, "POST", path, nil)
		is.Equal(status, want)
		status, _ = s.Raw(t, token, "GET", path+"/x", nil)
		is.Equal(status, want)
	}
	for _, bad := range []string{"0", "65536", "-1", "08", "http", "80%20"} {
		status, _ := s.Raw(t, owner, "POST", "/api/chats/"+chatID+"/ports/"+bad, nil)
		is.Equal(status, http.StatusBadRequest)
	}
	ticket := opened(s, t, owner, chatID, port)
	status, _ := s.Raw(t, "", "GET", ticket+"x", nil)
	is.Equal(status, http.StatusOK) // it stands for its account
	for _, escaped := range []string{"%7E", "%7e"} {
		status, body := s.Call(t, "", "GET", strings.Replace(ticket, "~", escaped, 1)+"x", nil)
		is.Equal([]any{status, body["path"]}, []any{http.StatusOK, "/x"})
	}
	mark := strings.Split(ticket, "/")[6]
	for _, elsewhere := range []string{
		fmt.Sprintf("/api/chats/%s/ports/%d/%s/", other, port, mark),
		fmt.Sprintf("/api/chats/%s/ports/%d/%s/", chatID, port+1, mark),
		path + "/" + mark + "x/", path + "/~/", path + "/" + strings.ToLower(mark) + "/",
	} {
		status, _ = s.Raw(t, "", "GET", elsewhere, nil)
		is.Equal(status, http.StatusUnauthorized)
		status, _ = s.Raw(t, owner, "GET", elsewhere, nil) // who has a ticket needs no token, and gains nothing by one
		is.Equal(status, http.StatusUnauthorized)
	}
	for _, route := range []string{"/api/chats/" + chatID + "/events", "/api/collections/chats/records",
		"/api/pocketcoder/sessions"} {
		status, _ = s.Raw(t, mark, "GET", route, nil)
		is.Equal(status, http.StatusUnauthorized) // it is no token
	}

	_, err := s.Chats.Update(t.Context(), chat.Update{Command: handlers.Command{Actor: events.ActorSystem}, Chat: chatID,
		User: &eve})
	is.NoErr(err)
	expect.Eventually(t, "the chat has another owner", func() bool {
		status, _ := s.Raw(t, "", "GET", ticket, nil)
		return status == http.StatusNotFound
	})
	ticket = opened(s, t, owner, other, port)
	identity, err := s.Accounts.Check(owner)
	is.NoErr(err)
	is.NoErr(s.Accounts.Revoke(t.Context(), account.RevokeSession{Account: id, Session: identity.Session}))
	status, _ = s.Raw(t, "", "GET", ticket, nil)
	is.Equal(status, http.StatusUnauthorized) // with the login
}

func TestPortWhereNothingServesIsNotFound(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, owner := s.User(t, "ada", account.User)
	chat := s.Chat(t, owner, "mine")
	status, p := s.Call(t, owner, "GET", "/api/chats/"+chat+"/ports/3000/", nil)
	is.Equal(status, http.StatusNotFound)
	expect.Contains(t, p["message"].(string), "Nothing can be reached at port 3000")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "SSH-2.0-OpenSSH\r\n")
			c.Close()
		}
	}()
	port := s.Serve(t, chat, nil)
	s.Sandbox.Mu.Lock()
	s.Sandbox.Servers[fmt.Sprint(chat, " ", port)] = l.Addr().String()
	s.Sandbox.Mu.Unlock()
	status, p = s.Call(t, owner, "GET", fmt.Sprintf("/api/chats/%s/ports/%d/", chat, port), nil)
	is.Equal(status, http.StatusBadGateway)
	expect.Contains(t, p["message"].(string), "does not answer as a web server")

	port = s.Serve(t, chat, http.HandlerFunc(echo))
	status, _ = s.Raw(t, owner, "PUT", fmt.Sprintf("/api/chats/%s/ports/%d/", chat, port), strings.Repeat("x", 9<<20))
	is.Equal(status, http.StatusRequestEntityTooLarge)
}

// echoFrames is a WebSocket (RFC 6455) as far as a frame that comes back goes.
func echoFrames(w http.ResponseWriter, r *http.Request) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	conn, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSet-Cookie: a=b\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	io.Copy(conn, buffered)
}

// socket opens a WebSocket below a ticket.
func socket(s *webtest.System, t *testing.T, ticket string) (net.Conn, *bufio.Reader) {
	t.Helper()
	is := is.New(t)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	is.NoErr(err)
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET %sws HTTP/1.1\r\nHost: %s\r\nOrigin: null\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
		ticket, s.Listener.Addr())
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	is.NoErr(err)
	is.Equal(resp.StatusCode, http.StatusSwitchingProtocols)
	is.Equal(resp.Header.Get("Sec-WebSocket-Accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
	is.Equal(resp.Header.Get("Set-Cookie"), "")
	return conn, in
}

// A WebSocket goes through, for as long as who opened it may.
func TestWebSocketEndsWithTheRight(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *webtest.System, owner account.Identity, chat string) error{
		"the login is revoked": func(s *webtest.System, owner account.Identity, chat string) error {
			return s.Accounts.Revoke(t.Context(), account.RevokeSession{Account: owner.Account, Session: owner.Session})
		},
		"the chat has another owner": func(s *webtest.System, owner account.Identity, chatID string) error {
			eve, _ := s.User(t, "eve", account.User)
			_, err := s.Chats.Update(t.Context(), chat.Update{Command: handlers.Command{Actor: events.ActorSystem},
				Chat: chatID, User: &eve})
			return err
		},
		"the chat is deleted": func(s *webtest.System, owner account.Identity, chatID string) error {
			_, err := s.Chats.Delete(t.Context(), chat.Delete{Command: handlers.Command{Actor: events.ActorSystem},
				Chat: chatID})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := webtest.NewSystem(t)
			_, token := s.User(t, "ada", account.User)
			chat := s.Chat(t, token, "mine")
			conn, in := socket(s, t, opened(s, t, token, chat, s.Serve(t, chat, http.HandlerFunc(echoFrames))))
			frame := []byte("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58") // "Hello", masked
			for range 3 {
				_, err := conn.Write(frame)
				is.NoErr(err)
				got := make([]byte, len(frame))
				_, err = io.ReadFull(in, got)
				is.NoErr(err)
				is.True(bytes.Equal(got, frame))
			}
			owner, err := s.Accounts.Check(token)
			is.NoErr(err)
			is.NoErr(end(s, owner, chat))
			_, err = io.ReadAll(in)
			is.NoErr(err)
		})
	}
}

func TestTooManyTicketsAreRefusedForAWhile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, root := s.User(t, "root", account.Admin)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	r.SetPathValue("id", s.Chat(t, root, "mine"))
	r.SetPathValue("port", "3000")
	caller := s.Web.API.CallerWith(r, root)
	identity := *caller.Identity
	caller.Identity = &identity
	var err error
	for i := 0; i < 1001 && err == nil; i++ { // one ticket of each account
		identity.Account = fmt.Sprint("admin", i)
		_, err = s.Web.Ports.Address(r, caller, "token")
	}
	p := api.ProblemOf(err)
	is.Equal(p.Status, http.StatusTooManyRequests)
	is.Equal(p.Retry, time.Minute)
}
