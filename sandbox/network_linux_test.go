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
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

func TestWallsHaveAWayToTheProxyAlone(t *testing.T) {
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
	eachLevel(t, func(t *testing.T, found isolation.Found) {
		is := is.New(t)
		j := arrest(t, found, nil)
		j.network = strings.Replace(proxy.URL, "http://", "http://exec7:token@", 1)
		if found.Level == isolation.Landlock { // it knows no addresses, so there is no network at all
			j.run(t, []escape{{"tcp %t", "EPERM", true}, {"socket 2 1 0", "EPERM", true}}, "%t", proxy.Listener.Addr().String())
			r := j.request("env")
			r.Network = j.network
			var env bytes.Buffer
			is.Equal(j.Exec(t.Context(), r, &env, io.Discard).ExitCode, 0)
			is.True(!strings.Contains(strings.ToUpper(env.String()), "_PROXY="))
			return
		}
		is.Equal(j.try("fetch http://example.org/page"), []string{"200 OK: exec7:token for http://example.org/page"})
		j.run(t, []escape{
			{"tcp %t", "EACCES ECONNREFUSED", true}, {"tcp 169.254.169.254:80", "EACCES ENETUNREACH", false},
			{"udp 192.0.2.1:53", "EPERM ENETUNREACH", false}, {"mptcp 192.0.2.1:80", "EPERM ENETUNREACH EPROTONOSUPPORT ENOPROTOOPT", false},
			{"fastopen %t", "EPERM EACCES ECONNREFUSED", false}, {"socket 17 3 0", "EPERM", false},
		}, "%t", other.Addr().String())
		r := j.request("true")
		r.Network = "http://nowhere"
		result := j.Exec(t.Context(), r, io.Discard, io.Discard)
		is.Equal(result.Reason, wire.Refused)
		is.Equal(result.Error[strings.LastIndex(result.Error, ": ")+2:], "the proxy for the network is not http://host:port")
	})
}

func TestWallsLetPortsBeReached(t *testing.T) {
	t.Parallel()
	for _, found := range append(levels(t), unprotected) {
		t.Run(string(found.Level), func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			j := arrest(t, found, nil)
			free, err := net.Listen("tcp", "127.0.0.1:0")
			is.NoErr(err)
			port := free.Addr().(*net.TCPAddr).Port
			free.Close()
			r := j.request(fmt.Sprintf("%s %s 'serve 127.0.0.1:%d'", j.program, attemptName, port))
			r.Ports = true
			if found.Level == isolation.Landlock {
				is.Equal(j.tryAs(r), []string{"EPERM"}) // it runs, and the kernel lets it serve nothing
				_, err := j.connect(t.Context(), r.Exec, port)
				is.True(strings.Contains(err.Error(), "install bubblewrap"))
				return
			}
			out, done := newLines(), make(chan wire.Result, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { done <- j.Exec(ctx, r, out, io.Discard) }()
			is.Equal(out.next(t), "listening")
			for range 2 {
				conn, err := j.connect(t.Context(), r.Exec, port)
				is.NoErr(err)
				said, err := io.ReadAll(conn)
				is.NoErr(err)
				is.Equal(string(said), "hello from inside")
				conn.Close()
				_, err = j.connect(t.Context(), r.Exec, 1)
				is.True(strings.Contains(err.Error(), "refused"))
			}
			_, err = j.connect(t.Context(), "another", port)
			is.True(strings.Contains(err.Error(), "not running here"))
			cancel()
			is.Equal((<-done).Reason, wire.Cancelled)
			_, err = j.connect(t.Context(), r.Exec, port)
			is.True(err != nil)
		})
	}
}
