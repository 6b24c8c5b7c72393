package egress_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/egress"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/permission"
)

func TestConnectionsWithoutCredentialsAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	s := &egress.Server{Network: &network.Sandbox{}, Logger: slog.New(slog.DiscardHandler)}
	s.AtMost(2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	connect := func() net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		is.NoErr(err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	silent := []net.Conn{connect(), connect()}
	third := connect()
	_, err = io.WriteString(third, "GET http://www.test.example/ HTTP/1.1\r\nHost: a\r\n\r\n")
	is.NoErr(err)
	is.NoErr(third.SetReadDeadline(time.Now().Add(200 * time.Millisecond)))
	_, err = third.Read(make([]byte, 1))
	is.True(errors.Is(err, os.ErrDeadlineExceeded))
	silent[0].Close()
	is.NoErr(third.SetReadDeadline(time.Now().Add(time.Minute)))
	answer, err := io.ReadAll(third)
	is.NoErr(err)
	is.True(strings.HasPrefix(string(answer), "HTTP/1.1 407 "))

	connect() // the last place is taken again, and the server waits for one
	cancel()
	is.True(errors.Is(<-served, context.Canceled))
}

// The proxy closes a connection on which no whole request arrives in time, the first or a later one.
func TestAConnectionWithoutARequestIsClosed(t *testing.T) {
	t.Parallel()
	w := openFor(t, permission.NetworkOff, time.Minute, 0, time.Second)
	w.Instead("www.test.example:80", host(site(t, false).URL))
	auth := credentials(w.begin("x1"))
	for name, c := range map[string]struct{ want, response string }{
		"before the first": {"", ""},
		"in its header":    {"GET http://www.test.example/ HTTP/1.1\r\nHost: a\r\n", ""},
		"after one":        {"GET http://www.test.example/ HTTP/1.1\r\nHost: a\r\nProxy-Authorization: Basic " + auth + "\r\n\r\n", "HTTP/1.1 200 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			is.True(strings.HasPrefix(w.say("%s", c.want), c.response)) // which ends
		})
	}
}

func TestAHalfClosedTunnelInWhichNothingPassesEnds(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := openFor(t, permission.NetworkOpen, time.Minute, 200*time.Millisecond, 0)
	l := w.listen("www.test.example:443")
	conn := w.tunnel(w.begin("x1"), "www.test.example:443", "")
	there, err := l.Accept()
	is.NoErr(err)
	defer there.Close()
	is.NoErr(there.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(bufio.NewReader(conn))
	is.NoErr(err)
	is.Equal(string(got), "HTTP/1.1 200 Connection established\r\n\r\n")
	is.NoErr(there.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = io.ReadAll(there) // conn is still open, and says nothing
	is.NoErr(err)
}
