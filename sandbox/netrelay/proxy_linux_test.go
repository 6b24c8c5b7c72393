package netrelay

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"
)

func TestConnectionsToTheProxyAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	link, _, l := openProgram(t)
	proxy := listen(t)
	served := make(chan error, 1)
	go func() { served <- link.Serve(proxy.Addr().String()) }()
	connect := func() net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		is.NoErr(err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	var first, outer net.Conn
	for i := range maxConnections {
		inner := connect()
		is.NoErr(proxy.SetDeadline(time.Now().Add(time.Minute)))
		conn, err := proxy.Accept()
		is.NoErr(err)
		defer conn.Close()
		if i == 0 {
			first, outer = inner, conn
		}
	}
	connect() // waits in the backlog
	is.NoErr(proxy.SetDeadline(time.Now().Add(200 * time.Millisecond)))
	_, err := proxy.Accept()
	is.True(errors.Is(err, os.ErrDeadlineExceeded))
	first.Close()
	outer.Close()
	is.NoErr(proxy.SetDeadline(time.Now().Add(time.Minute)))
	conn, err := proxy.Accept()
	is.NoErr(err)
	defer conn.Close()
	link.Close() // while all slots are in use
	is.NoErr(<-served)
}

// failingListener is a listener whose first Accepts fail.
type failingListener struct {
	net.Listener
	errs []error
}

func (s *failingListener) Accept() (net.Conn, error) {
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
	}
	return s.Listener.Accept()
}

func TestTheProxySurvivesALackOfDescriptors(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	link, _, _ := openProgram(t)
	l := listen(t)
	link.listener = &failingListener{l, []error{unix.EMFILE, unix.ENFILE}}
	proxy := listen(t)
	served := make(chan error, 1)
	go func() { served <- link.Serve(proxy.Addr().String()) }()
	conn, err := net.Dial("tcp", l.Addr().String())
	is.NoErr(err)
	defer conn.Close()
	is.NoErr(proxy.SetDeadline(time.Now().Add(time.Minute)))
	outer, err := proxy.Accept()
	is.NoErr(err)
	defer outer.Close()
	link.Close()
	is.NoErr(<-served)
}

func TestServeReturnsTheErrorOfTheListener(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	link, _, l := openProgram(t)
	raw, err := l.SyscallConn()
	is.NoErr(err)
	is.NoErr(raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_RDWR) })) // the command can do this too
	err = link.Serve("127.0.0.1:1")
	is.True(err != nil && strings.HasPrefix(err.Error(), "accept for the proxy: "))
}

func TestAProgramMayStartLate(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	link, theirs, err := Open()
	is.NoErr(err)
	defer theirs.Close()
	link.timeout = 20 * time.Millisecond
	served := make(chan error, 1)
	go func() { served <- link.Serve("127.0.0.1:1") }()
	select {
	case err := <-served:
		t.Fatal(err)
	case <-time.After(10 * link.timeout):
	}
	link.Close()
	is.NoErr(<-served)
}
