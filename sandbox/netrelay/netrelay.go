// Package netrelay is a small program that runs between bubblewrap and a command which may use the network or serve
// ports. It lives in the command's network namespace, which has no connection to the host's network, and passes
// connections out of it.
//
//	worker ◀── the listener for the proxy, then a connection for each port asked for ── Run ──▶ the command
//
// Open makes the two ends of a socket pair; one goes to the program as descriptor 3. Run is the program. It listens at
// ProxyAddress and passes that listener to the worker, which accepts the command's connections to it. When the worker
// asks for a port, Run connects to the port on the loopback address and passes the connection to the worker. It ends
// when the command ends, with the same exit code, or 128+n after signal n.
//
// The command runs as the same user and may take the program over. So the worker trusts nothing that the program
// sends. It refuses all but TCP sockets, and the namespace has no TCP sockets but those of the command and of the
// commands that share its loopback address.
//
// The package must not know what a worker or a request is.
package netrelay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Name is the first argument with which the binary runs as this program.
const Name = "sandbox-inside"

// ProxyAddress is the address of the proxy in the command's network namespace. If another command in the namespace uses
// the port, Run takes another one and puts it into the variables of the environment that name the proxy.
const ProxyAddress = "127.0.0.1:47100"

// Argv returns the arguments to run a command under the program, which is in the binary at path.
func Argv(path string, command []string) []string { return append([]string{path, Name}, command...) }

// answerTimeout limits a Dial: the wait for its turn, and the connection by the program.
const answerTimeout = 5 * time.Second

// Link is the worker's end.
type Link struct {
	sem        chan struct{} // holds one value while a question is pending or the listener is used
	conn       *net.UnixConn
	listener   net.Listener
	unanswered bool          // a question has no answer yet, so the next message is its answer
	timeout    time.Duration // answerTimeout, except in tests
	closed     chan struct{}
	closeOnce  func() // closes closed
}

// Open returns the worker's end and the program's end, which becomes its descriptor 3. The caller closes it after the
// start of the program.
func Open() (*Link, *os.File, error) {
	fds, err := pair()
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "link"), os.NewFile(uintptr(fds[1]), "link")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("open socket pair: %w", err)
	}
	ended := make(chan struct{})
	return &Link{sem: make(chan struct{}, 1), conn: conn.(*net.UnixConn), timeout: answerTimeout, closed: ended,
		closeOnce: sync.OnceFunc(func() { close(ended) })}, theirs, nil
}

// Close closes the listener and ends pending questions. Connections that were made stay open.
func (l *Link) Close() {
	l.closeOnce()
	l.conn.Close() // first, because it ends a pending question
	l.sem <- struct{}{}
	defer l.release()
	if l.listener != nil {
		shutdown(l.listener)
		l.listener.Close()
	}
}

// shutdown shuts a socket down. The sandbox shares the flags of the socket and may have made it blocking. A read would
// then block in the kernel, where Close cannot end it and would block too.
func shutdown(socket any) {
	if s, ok := socket.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_RDWR) })
		}
	}
}

type connection struct{ *net.TCPConn }

func (c connection) Close() error {
	shutdown(c.TCPConn)
	return c.TCPConn.Close()
}

// acquire locks the link, or returns an error when ctx is done.
func (l *Link) acquire(ctx context.Context) error {
	select {
	case l.sem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for other connections to the sandbox: %w", ctx.Err())
	}
}

func (l *Link) release() { <-l.sem }

// Dial connects to a port of the command. It fails after answerTimeout, because the command may have stopped the
// program. The answer to an earlier Dial that timed out may still arrive; it is discarded before the next question.
func (l *Link) Dial(ctx context.Context, port int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	if err := l.acquire(ctx); err != nil {
		return nil, err
	}
	defer l.release()
	if err := l.listen(ctx); err != nil {
		return nil, err
	}
	if l.unanswered {
		f, err := l.receive(ctx)
		if err == nil {
			f.Close()
		}
		if l.unanswered {
			return nil, err
		}
	}
	if _, err := l.conn.Write([]byte{byte(port >> 8), byte(port)}); err != nil {
		return nil, fmt.Errorf("ask for port %d: %w", port, err)
	}
	l.unanswered = true
	f, err := l.receive(ctx)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("take connection: %w", err)
	}
	return connection{conn.(*net.TCPConn)}, nil
}

// listen receives the listener, which is the first message of the program.
func (l *Link) listen(ctx context.Context) error {
	if l.listener != nil {
		return nil
	}
	f, err := l.receive(ctx)
	if err != nil {
		return err
	}
	defer f.Close()
	listener, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("take listener: %w", err)
	}
	select {
	case <-l.closed:
		listener.Close()
		return net.ErrClosed
	default:
		l.listener = listener
		return nil
	}
}

// receive returns the socket that the program sends, or the error that it sends instead.
func (l *Link) receive(ctx context.Context) (*os.File, error) {
	l.conn.SetReadDeadline(time.Time{})
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		l.conn.SetReadDeadline(time.Now())
		close(expired)
	})
	defer func() {
		if !stop() {
			<-expired // so that it does not end the next read
		}
	}()
	text, rights := make([]byte, 256), make([]byte, unix.CmsgSpace(4*4))
	n, rn, _, _, err := l.conn.ReadMsgUnix(text, rights)
	switch {
	case rn == 0 && n == 0 && (err == nil || errors.Is(err, io.EOF)):
		return nil, errors.New("receive socket from the sandbox: the command has ended")
	case rn == 0 && err != nil:
		return nil, fmt.Errorf("receive socket from the sandbox: %w", err)
	}
	l.unanswered = false
	var fds []int
	messages, err := unix.ParseSocketControlMessage(rights[:rn])
	for _, m := range messages {
		if got, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, got...)
		}
	}
	for i, fd := range fds {
		unix.CloseOnExec(fd)
		if i > 0 || len(fds) > 1 {
			unix.Close(fd)
		}
	}
	switch {
	case err != nil || len(fds) > 1:
		return nil, errors.New("receive socket from the sandbox: the message does not hold exactly one socket")
	case len(fds) == 0:
		return nil, syscall.Errno(text[0])
	case !isTCP(fds[0]):
		unix.Close(fds[0])
		return nil, errors.New("receive socket from the sandbox: the socket is not a TCP socket")
	}
	return os.NewFile(uintptr(fds[0]), "from the sandbox"), nil
}

func isTCP(fd int) bool {
	family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, soDomain)
	if err != nil {
		return false
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && kind == unix.SOCK_STREAM && (family == unix.AF_INET || family == unix.AF_INET6)
}

// maxConnections limits the open connections of a command to its proxy. Further connections wait in the backlog of the
// listener. Each connection takes up to six descriptors of the worker. The proxy has the same limit
// (handlers/network.MaxConnections).
const maxConnections = 64

// acceptPause is the pause before accept is tried again after a temporary error.
const acceptPause = 100 * time.Millisecond

// Serve forwards every connection of the command to ProxyAddress to address, until Close.
func (l *Link) Serve(address string) error {
	listener, err := l.proxyListener()
	if err != nil {
		return l.unlessClosed(err)
	}
	slots := make(chan struct{}, maxConnections)
	for {
		select {
		case slots <- struct{}{}:
		case <-l.closed:
			return nil
		}
		conn, err := l.accept(listener)
		if err != nil {
			return l.unlessClosed(fmt.Errorf("accept for the proxy: %w", err))
		}
		go func() {
			defer func() { <-slots }()
			join(conn, address)
		}()
	}
}

// unlessClosed returns nil instead of err after Close.
func (l *Link) unlessClosed(err error) error {
	select {
	case <-l.closed:
		return nil
	default:
		return err
	}
}

// temporaryErrors are the errors of accept for a lack of descriptors or memory. The connection stays in the backlog.
var temporaryErrors = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}

// accept accepts a connection. It tries again after a temporary error.
func (l *Link) accept(listener net.Listener) (net.Conn, error) {
	for {
		conn, err := listener.Accept()
		if !slices.ContainsFunc(temporaryErrors, func(temporary error) bool { return errors.Is(err, temporary) }) {
			return conn, err
		}
		select {
		case <-l.closed:
			return nil, err
		case <-time.After(acceptPause):
		}
	}
}

// join copies both ways until both sides have ended.
func join(inner net.Conn, address string) {
	defer inner.Close()
	outer, err := net.DialTimeout("tcp", address, answerTimeout)
	if err != nil {
		return
	}
	defer outer.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		io.Copy(inner, outer)
		inner.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(outer, inner)
	outer.(*net.TCPConn).CloseWrite()
	<-back
}

// proxyListener waits for the listener until Close, because the program may start late on a busy machine.
func (l *Link) proxyListener() (net.Listener, error) {
	ctx := context.Background()
	if err := l.acquire(ctx); err != nil {
		return nil, err
	}
	defer l.release()
	err := l.listen(ctx)
	return l.listener, err
}
