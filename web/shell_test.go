package web_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/exec"
	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
	"pocketcoder/web/routes"
	"pocketcoder/web/webtest"
)

// answerShells serves people's shells as the handlers do, with a function instead of a sandbox. It is ready when it
// returns.
func answerShells(t *testing.T, s *webtest.System, handle wire.Handler) {
	t.Helper()
	conn := eventstest.Conn(t, s.NATS) // without the subscriptions of others
	s.Run(t, func(ctx context.Context) error {
		return wire.Serve(ctx, conn, wire.PersonSubject, wire.Server{Queue: "handlers", Handle: handle})
	})
	expect.Eventually(t, "the handlers listen", func() bool { return conn.NumSubscriptions() > 0 })
	webtest.Check(t, conn.Flush())
}

// openShell opens a shell over the API.
func openShell(t *testing.T, s *webtest.System, token, path string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, answer, err := websocket.Dial(ctx, s.URL+path,
		&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {token}}})
	if err == nil {
		t.Cleanup(func() { conn.CloseNow() })
		conn.SetReadLimit(1 << 20)
	}
	return conn, answer, err
}

func writeShell(t *testing.T, conn *websocket.Conn, typ websocket.MessageType, text string) {
	t.Helper()
	webtest.Check(t, conn.Write(t.Context(), typ, []byte(text)))
}

func readShell(t *testing.T, conn *websocket.Conn) (websocket.MessageType, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	typ, body, err := conn.Read(ctx)
	webtest.Check(t, err)
	return typ, string(body)
}

func TestAShellHearsWhatIsTypedAndSaysHowItEnded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ada, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "Tidy up")
	requests := make(chan wire.Request, 1)
	answerShells(t, s, func(_ context.Context, r wire.Request, stdout, _ io.Writer) wire.Result {
		requests <- r
		for in := range r.Input {
			if in.Size != nil {
				json.NewEncoder(stdout).Encode(in.Size)
			} else if string(in.Data) == "exit" {
				return wire.Result{ExitCode: 4, Error: "as it was told"}
			} else {
				stdout.Write(in.Data)
			}
		}
		return wire.Result{}
	})
	conn, _, err := openShell(t, s, token, "/api/chats/"+chat+"/shell?cols=100&rows=30&private=true")
	is.NoErr(err)
	r := <-requests
	is.Equal([]string{r.Session, r.Account, r.Call}, []string{chat, ada, exec.PrivateShell})
	is.Equal(*r.Terminal, wire.Terminal{Cols: 100, Rows: 30, Kind: "xterm-256color"})
	writeShell(t, conn, websocket.MessageBinary, "echo hi\r\x00\xff")
	typ, text := readShell(t, conn)
	is.Equal(typ, websocket.MessageBinary)
	is.Equal(text, "echo hi\r\x00\xff")
	writeShell(t, conn, websocket.MessageText, `{"cols": 50, "rows": 20}`)
	_, text = readShell(t, conn)
	is.Equal(text, `{"rows":20,"cols":50,"kind":"xterm-256color"}`+"\n")
	writeShell(t, conn, websocket.MessageBinary, "exit")
	typ, text = readShell(t, conn)
	is.Equal(typ, websocket.MessageText)
	is.Equal(text, `{"exit_code":4,"reason":"","error":"as it was told"}`)
	_, _, err = conn.Read(t.Context())
	is.Equal(websocket.CloseStatus(err), websocket.StatusNormalClosure)
}

func TestAShellThatPrintsForEverWaitsForItsClient(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "Tidy up")
	output, ended := make(chan struct{}), make(chan struct{})
	answerShells(t, s, func(ctx context.Context, r wire.Request, stdout, _ io.Writer) wire.Result {
		go func() {
			for range r.Input {
				output <- struct{}{}
			}
		}()
		var err error
		// more than is on the way between the servers, too
		for n := 0; n < routes.ShellWindow+3*wire.Window && err == nil; n += 8 << 10 {
			_, err = stdout.Write(make([]byte, 8<<10))
		}
		close(ended)
		return wire.Result{Reason: wire.Cancelled}
	})
	conn, _, err := openShell(t, s, token, "/api/chats/"+chat+"/shell")
	is.NoErr(err)
	take := func(n int) {
		for read := 0; read < n; {
			_, text := readShell(t, conn)
			read += len(text)
		}
	}
	take(routes.ShellWindow)
	writeShell(t, conn, websocket.MessageText, `{"taken": 8192}`)
	take(8 << 10)
	for range 300 { // time enough for a server that does not wait
		writeShell(t, conn, websocket.MessageBinary, "x")
		select {
		case <-output:
		case <-ended:
			t.Fatal("it printed more than its client has room for")
		}
	}
	conn.CloseNow()
	<-ended // with the connection
}

func TestAShellEndsWithTheLoginAndWithTheChat(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, s *webtest.System, account, token, chat string){
		"the chat is deleted": func(t *testing.T, s *webtest.System, _, token, chat string) { s.Remove(t, token, chat) },
		"the account is deleted": func(t *testing.T, s *webtest.System, id, _, _ string) {
			_, err := s.Accounts.DeleteAccount(t.Context(),
				account.DeleteAccount{Command: handlers.Command{Actor: events.ActorSystem}, Account: id})
			webtest.Check(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := webtest.NewSystem(t)
			ada, token := s.User(t, "ada", "user")
			chat := s.Chat(t, token, "Tidy up")
			began, ended := make(chan struct{}), make(chan struct{})
			answerShells(t, s, func(ctx context.Context, _ wire.Request, _, _ io.Writer) wire.Result {
				close(began)
				<-ctx.Done()
				close(ended)
				return wire.Result{Reason: wire.Cancelled}
			})
			_, _, err := openShell(t, s, token, "/api/chats/"+chat+"/shell")
			is.NoErr(err)
			<-began
			end(t, s, ada, token, chat)
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatal("the shell goes on")
			}
		})
	}
}

func TestAShellIsForPeopleOfTheChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", "user")
	_, bob := s.User(t, "bob", "user")
	_, bot := s.User(t, "bot", "agent")
	chat := s.Chat(t, ada, "Tidy up")
	answerShells(t, s, func(context.Context, wire.Request, io.Writer, io.Writer) wire.Result {
		t.Error("a shell was opened")
		return wire.Result{}
	})
	for token, status := range map[string]int{"": http.StatusUnauthorized, "forged": http.StatusUnauthorized,
		bob: http.StatusNotFound, bot: http.StatusNotFound} {
		_, answer, err := openShell(t, s, token, "/api/chats/"+chat+"/shell")
		is.True(err != nil)
		is.Equal(answer.StatusCode, status)
	}
	for _, query := range []string{"?cols=0", "?rows=99999", "?cols=x", "?private=perhaps"} {
		_, answer, err := openShell(t, s, ada, "/api/chats/"+chat+"/shell"+query)
		is.True(err != nil)
		is.Equal(answer.StatusCode, http.StatusBadRequest)
	}
	status, _ := s.Call(t, ada, "GET", "/api/chats/"+chat+"/shell", nil)
	is.Equal(status, http.StatusUpgradeRequired)
}

// The pages know the account by its cookie, which browsers send whatever page opens the socket.
func TestAPageOfAnotherOriginOpensNoShell(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "Tidy up")
	answerShells(t, s, func(context.Context, wire.Request, io.Writer, io.Writer) wire.Result {
		return wire.Result{ExitCode: 7}
	})
	server := httptest.NewServer(s.Web.Handler())
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	dial := func(cookie, origin string) (*websocket.Conn, int) {
		h := http.Header{"Cookie": {cookie}, "Origin": {origin}}
		follow := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		conn, answer, err := websocket.Dial(t.Context(), server.URL+"/chats/"+chat+"/shell/socket",
			&websocket.DialOptions{HTTPHeader: h, HTTPClient: follow})
		is.Equal(err == nil, answer.StatusCode == http.StatusSwitchingProtocols)
		return conn, answer.StatusCode
	}
	for _, origin := range []string{"https://evil.example", "http://localhost:1", "null",
		"http://3000-0123456789abcdef." + host} {
		_, status := dial("pocketcoder="+token, origin)
		is.Equal(status, http.StatusForbidden)
	}
	_, status := dial("", server.URL)
	is.Equal(status, http.StatusSeeOther) // to the login
	conn, status := dial("pocketcoder="+token, server.URL)
	is.Equal(status, http.StatusSwitchingProtocols)
	defer conn.CloseNow()
	_, text := readShell(t, conn)
	expect.Contains(t, text, `"exit_code":7`)
}
