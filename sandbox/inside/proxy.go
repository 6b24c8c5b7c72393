package inside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"
)

// maxConnections is how many of a command's connections to its proxy are open at a time; more wait in the listener's
// backlog, which is the command's own. Each takes up to six descriptors of the worker's. It is
// handlers.MaxConnections, what the proxy lets one have.
const maxConnections = 64

// acceptPause is how long a connection waits that this process lacks something for.
const acceptPause = 100 * time.Millisecond

// Serve connects every connection that the command makes to ProxyAddress with address, maxConnections at a time, until
// Close.
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

// unlessClosed leaves out what comes of Close.
func (l *Link) unlessClosed(err error) error {
	select {
	case <-l.closed:
		return nil
	default:
		return err
	}
}

// temporaryErrors are the errors that go away: this process or the machine has too much open, or no memory.
var temporaryErrors = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}

// accept waits for a connection, also when there is none to be had for a moment: it stays in the backlog.
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

// proxyListener is the listener, in its turn. It is waited for until Close: on a busy machine the program starts late.
func (l *Link) proxyListener() (net.Listener, error) {
	ctx := context.Background()
	if err := l.acquire(ctx); err != nil {
		return nil, err
	}
	defer l.release()
	err := l.listen(ctx)
	return l.listener, err
}
