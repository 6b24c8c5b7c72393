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
