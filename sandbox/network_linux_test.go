package sandbox

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

func TestIsolationAllowsConnectionsToTheProxyOnly(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		credentials, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.Header.Get("Proxy-Authorization"), "Basic "))
		fmt.Fprintf(w, "%s for %s", credentials, r.URL)
	}))
	t.Cleanup(proxy.Close)
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	eachLevelAndContainer(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, nil)
		j.network = strings.Replace(proxy.URL, "http://", "http://exec7:token@", 1)
		if choice.Level == isolation.Landlock { // it knows no addresses, so there is no network at all
			j.run(t, []escape{{"tcp %t", "EPERM", true}, {"socket 2 1 0", "EPERM", true}}, "%t", proxy.Listener.Addr().String())
			r := j.request("env")
			r.Network = j.network
			var env bytes.Buffer
			is.Equal(j.Exec(t.Context(), r, &env, io.Discard).ExitCode, 0)
			expect.Lacks(t, strings.ToUpper(env.String()), "_PROXY=")
			return
		}
		is.Equal(j.try("fetch http://example.org/page"), []string{"200 OK: exec7:token for http://example.org/page"})
		escapes := []escape{
			{"udp 192.0.2.1:53", "EPERM ENETUNREACH", false}, {"mptcp 192.0.2.1:80", "EPERM ENETUNREACH EPROTONOSUPPORT ENOPROTOOPT", false},
			{"socket 17 3 0", "EPERM", false},
		}
		if choice.Level == isolation.Bwrap { // a container's own network restricts TCP
			escapes = append(escapes, escape{"tcp %t", "ECONNREFUSED", true},
				escape{"tcp 169.254.169.254:80", "ENETUNREACH", false}, escape{"fastopen %t", "ECONNREFUSED", false})
		}
		j.run(t, escapes, "%t", other.Addr().String())
		r := j.request("true")
		r.Network = "http://nowhere"
		result := j.Exec(t.Context(), r, io.Discard, io.Discard)
		is.Equal(result.Reason, wire.Refused)
		is.Equal(result.Error[strings.LastIndex(result.Error, ": ")+2:], "the address of the proxy is not http://host:port")
	})
}

func TestPortsOfIsolatedCommandsAreReachable(t *testing.T) {
	t.Parallel()
	for _, choice := range append(levels(t), isolation.Choice{Level: isolation.Container}, unprotected) {
		t.Run(string(choice.Level), func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			j := newTestWorker(t, choice, nil)
			r := j.request(fmt.Sprintf("%s %s 'serve 127.0.0.1:0'", j.program, attemptName))
			r.Ports = true
			if choice.Level == isolation.Landlock {
				is.Equal(j.tryAs(r), []string{"EPERM"}) // it runs, and the kernel lets it serve nothing
				_, refusal := j.ask(t, r.Exec, 80)
				expect.Contains(t, refusal, "install bubblewrap")
				return
			}
			out, done := newLines(), make(chan wire.Result, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { done <- j.Exec(ctx, r, out, io.Discard) }()
			port, err := strconv.Atoi(out.next(t))
			is.NoErr(err)
			for range 2 {
				answer, refusal := j.ask(t, r.Exec, port)
				is.Equal(refusal, "")
				is.Equal(answer, "hello from inside")
				_, refusal = j.ask(t, r.Exec, 1)
				expect.Contains(t, refusal, "refused")
			}
			_, refusal := j.ask(t, "another", port)
			expect.Contains(t, refusal, "not running here")
			cancel()
			is.Equal((<-done).Reason, wire.Cancelled)
			_, refusal = j.ask(t, r.Exec, port)
			is.True(refusal != "")
		})
	}
}

// Without its own network, a command listens on the machine's network.
func TestDialReachesOnlyTheCommandsOwnListener(t *testing.T) {
	t.Parallel()
	w := open(t)
	for name, c := range map[string]struct{ network, theirs, its, want string }{
		"another's":                        {"tcp", "127.0.0.1", "", ""},
		"all of 4 another's, its own on 6": {"tcp4", "0.0.0.0", "::1", "hello from inside"},
		"another's, all of 4 and 6":        {"tcp", "::", "", ""},
		"another's, its own elsewhere":     {"tcp", "127.0.0.1", "127.0.0.2", ""},
		"another's on 4, its own on 6":     {"tcp", "127.0.0.1", "::1", "hello from inside"},
		"another's on 6, its own on 4":     {"tcp", "::1", "127.0.0.1", "hello from inside"},
		"another's elsewhere":              {"tcp", "127.0.0.2", "127.0.0.1", "hello from inside"},
		"unused, all of IPv4 and IPv6":     {"tcp", "", "::", "hello from inside"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			if six, err := net.Listen("tcp6", "[::1]:0"); err == nil {
				six.Close()
			} else if strings.Contains(c.theirs+c.its, ":") {
				t.Skip("there is no IPv6 here: ", err)
			}
			port := 0 // any that is free
			if c.theirs != "" {
				l := listenBeside(t, c.network, c.theirs, c.its)
				defer l.Close()
				go answer(l, "another's")
				port = l.Addr().(*net.TCPAddr).Port
			}
			command := fmt.Sprintf("echo %d; exec sleep 600", port)
			if c.its != "" {
				command = fmt.Sprintf("exec %s %s 'serve %s'", os.Args[0], attemptName, net.JoinHostPort(c.its, strconv.Itoa(port)))
			}
			exec, line, _ := startServer(t, w, command)
			port, err := strconv.Atoi(line)
			is.NoErr(err)
			answer, refusal := w.ask(t, exec, port)
			is.Equal(answer, c.want)
			is.Equal(refusal == "", c.want != "")
		})
	}
}

// listenBeside listens on an address, at a port that is free on another address too. other may be "".
func listenBeside(t *testing.T, network, address, other string) net.Listener {
	t.Helper()
	for range 100 {
		l, err := net.Listen(network, net.JoinHostPort(address, "0"))
		if err != nil {
			t.Fatal(err)
		}
		if other == "" {
			return l
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		if beside, err := net.Listen("tcp", net.JoinHostPort(other, port)); err == nil {
			beside.Close()
			return l
		}
		l.Close()
	}
	t.Fatal("no port is free at both addresses")
	return nil
}

func answer(l net.Listener, with string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		io.WriteString(conn, with)
		conn.Close()
	}
}

// Processes left behind continue, but their connections end.
func TestDialEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	is.NoErr(unix.Mkfifo(filepath.Join(w.workspace, "port"), 0o600))
	is.NoErr(unix.Mkfifo(filepath.Join(w.workspace, "end"), 0o600))
	r, out := w.request(serverVariable+"=1 setsid "+os.Args[0]+
		" >port 2>&1 & read -r port <port; echo $port; read -r _ <end"), newLines()
	r.Ports = true
	done := make(chan wire.Result, 1)
	go func() { done <- w.Exec(t.Context(), r, out, io.Discard) }()
	port, err := strconv.Atoi(out.next(t))
	is.NoErr(err)
	dialed, said := make(chan wire.Result, 1), make(firstWrite, 1)
	go func() {
		dialed <- w.Handle(t.Context(), wire.Request{Op: wire.Dial, Exec: r.Exec, Port: port, Input: make(chan wire.Input)},
			said, io.Discard)
	}()
	<-said
	is.NoErr(os.WriteFile(filepath.Join(w.workspace, "end"), []byte("now\n"), 0))
	is.Equal((<-done).ExitCode, 0)
	select {
	case result := <-dialed:
		is.Equal(result.Reason, wire.Exited)
	case <-time.After(time.Minute):
		t.Fatal("the connection outlives its command")
	}
	_, refusal := w.ask(t, r.Exec, port)
	expect.Contains(t, refusal, "not running here")
}
