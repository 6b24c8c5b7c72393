package netrelay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"

	"pocketcoder/ops/expect"
)

// The command may replace the program, so the worker accepts only TCP sockets.
func TestOnlyTCPSocketsAreAccepted(t *testing.T) {
	t.Parallel()
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		fds  []int
		want string
	}{
		"a file":        {[]int{int(file.Fd())}, "not a TCP socket"},
		"a unix socket": {fds[:1], "not a TCP socket"},
		"a UDP socket":  {[]int{udp}, "not a TCP socket"},
		"several":       {[]int{tcp, tcp}, "exactly one socket"},
		"no descriptor": {nil, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			link, theirs, err := Open()
			is.NoErr(err)
			t.Cleanup(link.Close)
			var rights []byte
			if c.fds != nil {
				rights = unix.UnixRights(c.fds...)
			}
			is.NoErr(unix.Sendmsg(int(theirs.Fd()), []byte{byte(unix.ECONNREFUSED)}, rights, nil, 0))
			defer theirs.Close()
			_, err = link.Dial(t.Context(), 80)
			is.True(err != nil)
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestDialFailsAfterTheEndOfTheCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	link, theirs, err := Open()
	is.NoErr(err)
	theirs.Close()
	_, err = link.Dial(t.Context(), 80)
	is.True(err != nil)
	expect.Contains(t, err.Error(), "has ended")
	link.Close()
	_, err = link.Dial(t.Context(), 80)
	is.True(err != nil)
}

// openProgram returns a link that has received a listener, and the program's end of it.
func openProgram(t *testing.T) (*Link, *net.UnixConn, *net.TCPListener) {
	t.Helper()
	is := is.New(t)
	link, theirs, err := Open()
	is.NoErr(err)
	t.Cleanup(link.Close)
	defer theirs.Close()
	conn, err := net.FileConn(theirs)
	is.NoErr(err)
	t.Cleanup(func() { conn.Close() })
	l := listen(t)
	is.NoErr(pass(conn.(*net.UnixConn), l))
	return link, conn.(*net.UnixConn), l
}

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	is.New(t).NoErr(err)
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

// The command shares the flags of a passed socket, and may make it blocking.
func TestABlockingSocketIsClosed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	link, conn, l := openProgram(t)
	go serve(conn)
	server := listen(t)
	dialed, err := link.Dial(t.Context(), server.Addr().(*net.TCPAddr).Port)
	is.NoErr(err)
	listener, err := link.proxyListener()
	is.NoErr(err)
	block(t, dialed.(connection).TCPConn)
	block(t, l)
	waiting, closed := make(chan bool), make(chan bool)
	go func() {
		waiting <- true
		dialed.Read(make([]byte, 1))
	}()
	go func() {
		waiting <- true
		listener.Accept()
	}()
	<-waiting
	<-waiting
	go func() {
		dialed.Close()
		link.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("a socket that blocks is not closed")
	}
}

func block(t *testing.T, socket syscall.Conn) {
	is := is.New(t)
	raw, err := socket.SyscallConn()
	is.NoErr(err)
	is.NoErr(raw.Control(func(fd uintptr) { is.NoErr(unix.SetNonblock(int(fd), false)) }))
}

// The program may be slow, or stopped for a while.
func TestALateAnswerIsDiscarded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	link, conn, l := openProgram(t)
	late, next := l.Addr().(*net.TCPAddr).Port, listen(t).Addr().(*net.TCPAddr).Port
	link.timeout = 100 * time.Millisecond
	for range 2 {
		_, err := link.Dial(t.Context(), late)
		is.True(errors.Is(err, os.ErrDeadlineExceeded))
	}
	link.timeout = answerTimeout
	go serve(conn)
	for _, port := range []int{next, late} {
		got, err := link.Dial(t.Context(), port)
		is.NoErr(err)
		defer got.Close()
		is.Equal(got.RemoteAddr().(*net.TCPAddr).Port, port)
	}
}

// A command can stop the program for good.
func TestACancelledDialReturns(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	link, _, _ := openProgram(t)
	first := make(chan error, 1)
	waits, giveUp := context.WithCancel(t.Context())
	go func() {
		_, err := link.Dial(waits, 80)
		first <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for range 3 {
		_, err := link.Dial(ctx, 80)
		is.True(err != nil)
	}
	is.Equal(len(first), 0) // the first Dial still waits
	giveUp()
	is.True(<-first != nil)
}

// An empty message looks like the end of the connection, and can carry descriptors.
func TestDescriptorsOfAnEmptyMessageAreClosed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	link, theirs, err := Open()
	is.NoErr(err)
	defer link.Close()
	defer theirs.Close()
	r, w, err := os.Pipe()
	is.NoErr(err)
	defer r.Close()
	rights := unix.UnixRights(int(w.Fd()))
	message := unix.Msghdr{Control: &rights[0]}
	message.SetControllen(len(rights))
	// unix.Sendmsg adds a byte
	_, _, errno := unix.Syscall(unix.SYS_SENDMSG, theirs.Fd(), uintptr(unsafe.Pointer(&message)), 0)
	is.Equal(errno, unix.Errno(0))
	is.NoErr(w.Close())
	_, err = link.Dial(t.Context(), 80)
	is.True(err != nil)
	is.NoErr(r.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = r.Read(make([]byte, 1))
	is.Equal(err, io.EOF) // the other end is closed
}

func TestRunWithoutACommandFails(t *testing.T) {
	is := is.New(t)
	var stderr bytes.Buffer
	is.Equal(Run(nil, &stderr), 126)
	is.Equal(stderr.String(), "sandbox: no command\n")
}
