package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// ways are how a conversation reaches a system: the handler of the API, where it listens, and the address for clients.
var ways = map[string]func(*testing.T, *webtest.System) (http.Handler, func() (net.Listener, error), client.Address){
	"socket": func(t *testing.T, s *webtest.System) (http.Handler, func() (net.Listener, error), client.Address) {
		dir, err := os.MkdirTemp("", "data") // the path of a socket is short
		webtest.Check(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		d := datadir.Dir(dir)
		webtest.Check(t, d.Announce(datadir.Running{PID: os.Getpid()}))
		webtest.Check(t, os.Mkdir(filepath.Dir(d.APISocket()), 0o700))
		listen := func() (net.Listener, error) { return net.Listen("unix", d.APISocket()) }
		return s.Web.Local(), listen, client.Address{Data: d}
	},
	"server": func(t *testing.T, s *webtest.System) (http.Handler, func() (net.Listener, error), client.Address) {
		_, token := s.User(t, "root", account.Admin)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		webtest.Check(t, err)
		address := l.Addr().String()
		webtest.Check(t, l.Close())
		listen := func() (net.Listener, error) { return net.Listen("tcp", address) }
		return s.Web.Routes(), listen, client.Address{Server: "http://" + address, Token: token, Config: t.TempDir()}
	},
}

// The system is away for a moment. Events that happen meanwhile, and a message that is typed meanwhile, come once.
func TestAConversationGoesOnWhenTheSystemIsBack(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			system := webtest.NewSystem(t)
			_, ada := system.User(t, "ada", account.User)
			chat := system.Chat(t, ada, "mine")
			handler, listen, at := way(t, system)
			serve := func() *http.Server {
				l, err := listen()
				is.NoErr(err)
				server := &http.Server{Handler: handler}
				go server.Serve(l)
				t.Cleanup(func() { server.Close() })
				return server
			}
			server := serve()
			s, err := client.Connect(t.Context(), at)
			is.NoErr(err)
			t.Cleanup(s.Close)
			out, ended := &expect.Buffer{}, make(chan error, 1)
			in, typed := io.Pipe()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				_, err := Run(ctx, s, Options{Chat: chat, In: in, Out: out, Err: out}, nil)
				ended <- err
			}()
			says := func(text string) {
				t.Helper()
				system.Append(t, chat, events.ModelReplaced{Reason: text})
			}
			shown := func(text string) {
				t.Helper()
				expect.Eventually(t, text, func() bool { return strings.Contains(out.String(), text) })
			}
			n := 0
			expect.Eventually(t, "the conversation has begun", func() bool {
				n++
				says(fmt.Sprint("beginning ", n))
				return strings.Contains(out.String(), "beginning")
			})
			says("the first")
			shown("the first")

			is.NoErr(server.Close())
			shown("the connection to the system is lost")
			says("the second")
			_, err = io.WriteString(typed, "hello\n")
			is.NoErr(err)
			serve()
			shown("the second")
			submitted := func() (n int) {
				_, err := system.Log.Fold(t.Context(), events.ChatSubject(chat, events.MessageSubmitted{}.Kind()), 0,
					func(events.Event) error { n++; return nil })
				is.NoErr(err)
				return n
			}
			expect.Eventually(t, "the message is submitted", func() bool { return submitted() > 0 })
			says("the third")
			shown("the third")
			for _, text := range []string{"the first", "the second", "the third"} {
				is.Equal(strings.Count(out.String(), text), 1)
			}
			is.Equal(submitted(), 1)
			cancel()
			err = <-ended
			is.True(errors.Is(err, context.Canceled))
		})
	}
}
