package egress_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
)

// long is more than anything here takes, and less than for ever.
const long = time.Minute

// posting asks for a body to be taken, and does not send it.
func posting(address, header string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\n%sContent-Length: 10\r\n\r\n", address, header)
}

func proxyAuthorization(proxy *url.URL) string {
	return "Proxy-Authorization: Basic " + credentials(proxy) + "\r\n"
}

// answering is a host that answers each request as it was told to when its header has come, and then ends.
func (w *proxyFixture) answering(name, answer string) {
	w.t.Helper()
	l := w.listen(name)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, answer)
			conn.Close()
		}
	}()
}

func TestABodyThatDoesNotComeIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	w := openFor(t, permission.NetworkOff, time.Minute, 0, time.Second)
	w.answering("early.test.example:80", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly")
	auth := proxyAuthorization(w.begin("x1"))
	for name, c := range map[string]struct{ want, response string }{
		"without credentials":       {posting("http://www.test.example/", ""), "HTTP/1.1 407 "},
		"to no public host":         {posting("http://localhost/", auth), "HTTP/1.1 403 "},
		"to a host that answers it": {posting("http://early.test.example/", auth), "HTTP/1.1 200 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			conn := w.raw(c.want)
			is.NoErr(conn.SetReadDeadline(time.Now().Add(long)))
			response, err := io.ReadAll(conn)
			is.NoErr(err) // it ends
			is.True(strings.HasPrefix(string(response), c.response))
		})
	}
}

func TestARequestThatIsStillComingEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOff)
	l := w.listen("www.test.example:80")
	conn := w.raw(posting("http://www.test.example/", proxyAuthorization(w.begin("x1"))))
	there, err := l.Accept()
	is.NoErr(err)
	defer there.Close()
	_, err = there.Read(make([]byte, 1))
	is.NoErr(err)
	w.Network.Done("x1")
	is.NoErr(conn.SetReadDeadline(time.Now().Add(long)))
	_, err = conn.Read(make([]byte, 1))
	is.True(err != nil && !errors.Is(err, os.ErrDeadlineExceeded))
}

// flooded is the connection of a client that reads nothing of an endless answer, when no more of that goes out, and
// the host's.
func (w *proxyFixture) flooded(exec string) (here, there net.Conn) {
	w.t.Helper()
	is := is.New(w.t)
	l := w.listen("www.test.example:80")
	here = w.raw("GET http://www.test.example/ HTTP/1.1\r\nHost: a\r\n" + proxyAuthorization(w.begin(exec)) + "\r\n")
	there, err := l.Accept()
	is.NoErr(err)
	w.t.Cleanup(func() { there.Close() })
	_, err = io.WriteString(there, "HTTP/1.1 200 OK\r\n\r\n")
	for err == nil {
		is.NoErr(there.SetWriteDeadline(time.Now().Add(time.Second)))
		_, err = there.Write(make([]byte, 32<<10))
	}
	return here, there
}

func TestAClientThatDoesNotReadIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	_, there := openFor(t, permission.NetworkOff, time.Minute, 2*time.Second, 0).flooded("x1")
	is.NoErr(there.SetReadDeadline(time.Now().Add(long)))
	_, err := io.Copy(io.Discard, there)
	is.True(!errors.Is(err, os.ErrDeadlineExceeded))
}

func TestAnAnswerNobodyReadsEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOff)
	here, _ := w.flooded("x1")
	w.Network.Done("x1")
	is.NoErr(here.SetWriteDeadline(time.Now().Add(long)))
	var err error
	for err == nil { // a connection that is closed takes nothing
		_, err = here.Write(make([]byte, 32<<10))
	}
	is.True(!errors.Is(err, os.ErrDeadlineExceeded))
}

// The host works, and no client is left that could read an error.
func TestAWaitingConnectionIsClosedWithoutAnErrorWhenItsCommandEnds(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkAsks)
	conn := w.tunnel(w.begin("x1"), "www.other.example:443", "")
	w.hostRequest(1)
	w.Network.Done("x1")
	is.NoErr(conn.SetReadDeadline(time.Now().Add(long)))
	response, err := io.ReadAll(conn)
	is.NoErr(err)
	is.Equal(string(response), "")
	expect.Lacks(t, w.logged.String(), "level=WARN")
}

func TestACommandThatHasJustEndedIsToldSo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOff)
	proxy := w.begin("x1")
	token, _ := proxy.User.Password()
	x, ok := w.Network.Running("x1", token)
	is.True(ok)
	w.Network.Done("x1")
	r := httptest.NewRequest(http.MethodGet, "http://www.test.example/", nil)
	r.Header.Set("Proxy-Authorization", "Basic "+credentials(proxy))
	answer := httptest.NewRecorder()
	w.ServeExecution(answer, r, x)
	is.Equal(answer.Code, http.StatusProxyAuthRequired)
}

func TestABrokenAnswerIsLoggedWhereTheRestIs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOff)
	w.answering("www.test.example:80", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
	conn := w.raw("GET http://www.test.example/ HTTP/1.1\r\nHost: a\r\n" + proxyAuthorization(w.begin("x1")) + "\r\n")
	is.NoErr(conn.SetReadDeadline(time.Now().Add(long)))
	_, err := io.Copy(io.Discard, conn)
	is.NoErr(err)
	expect.Contains(t, w.logged.String(), "level=DEBUG")
	expect.Contains(t, w.logged.String(), "ReverseProxy read error")
}
