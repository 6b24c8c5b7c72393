package egress_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/network"
	"pocketcoder/handlers/permission"
)

func TestATunnelEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOff)
	l := w.listen("www.test.example:22")
	w.Network.Gate.Rules[0].Pattern = "*.test.example:22"
	conn := w.tunnel(w.begin("x1"), "www.test.example:22", "SSH-2.0-x\r\n")
	there, err := l.Accept()
	is.NoErr(err)
	defer there.Close()
	line, err := bufio.NewReader(there).ReadString('\n') // sent before the tunnel stood
	is.NoErr(err)
	is.Equal(line, "SSH-2.0-x\r\n")
	_, err = io.WriteString(there, "hello\n")
	is.NoErr(err)
	here := bufio.NewReader(conn)
	for _, want := range []string{"HTTP/1.1 200 Connection established\r\n", "\r\n", "hello\n"} {
		line, err := here.ReadString('\n')
		is.NoErr(err)
		is.Equal(line, want)
	}
	w.Network.Done("x1")
	_, err = here.ReadByte()
	is.True(err != nil)
	_, err = there.Read(make([]byte, 1))
	is.True(err != nil)
}

func TestBothEndsOfATunnelHearTheEndOfTheOther(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOpen)
	l := w.listen("www.test.example:443")
	conn := w.tunnel(w.begin("x1"), "www.test.example:443", "all")
	there, err := l.Accept()
	is.NoErr(err)
	here := bufio.NewReader(conn)
	_, err = here.ReadString('\n') // who leaves before the tunnel stands has given up
	is.NoErr(err)
	is.NoErr(conn.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(there) // it ends, and the way back does not
	is.NoErr(err)
	is.Equal(string(got), "all")
	_, err = io.WriteString(there, "answer")
	is.NoErr(err)
	there.Close()
	got, err = io.ReadAll(here)
	is.NoErr(err)
	is.Equal(string(got), "\r\nanswer")
}

func TestConnectionsOfACommandAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOpen)
	w.listen("www.test.example:443")
	full, other := w.begin("x1"), w.begin("x2")
	for range network.MaxConnections {
		_, err := bufio.NewReader(w.tunnel(full, "www.test.example:443", "")).ReadString('\n')
		is.NoErr(err)
	}
	is.True(strings.HasPrefix(w.say("%s", connectTo(full, "www.test.example:443")), "HTTP/1.1 429 "))
	is.True(strings.HasPrefix(w.say("%s", connectTo(other, "no-such.example:443")), "HTTP/1.1 502 "))
}

// A body is on its way before it is whole.
func TestBodiesAreStreamed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOpen)
	received := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		<-received
		io.WriteString(w, "second\n")
	}))
	defer s.Close()
	w.Instead("www.test.example:80", host(s.URL))
	resp, err := client(w.begin("x1")).Get("http://www.test.example/")
	is.NoErr(err)
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	line, err := body.ReadString('\n')
	is.NoErr(err)
	is.Equal(line, "first\n")
	close(received)
	line, err = body.ReadString('\n')
	is.NoErr(err)
	is.Equal(line, "second\n")
}
