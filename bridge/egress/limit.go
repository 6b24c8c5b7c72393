package egress

import (
	"net"
	"sync"
	"time"
)

// limited is a listener with a limit of open connections. Further connections wait in the backlog. Its connections can
// be closed in one direction, unlike those of golang.org/x/net/netutil.
type limited struct {
	net.Listener
	slots chan struct{}
	quiet time.Duration // how long a connection may take nothing of what is written
	ended chan struct{}
	end   func() // closes ended, once
}

func limit(l net.Listener, most int, quiet time.Duration) limited {
	ended := make(chan struct{})
	return limited{l, make(chan struct{}, most), quiet, ended, sync.OnceFunc(func() { close(ended) })}
}

func (l limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.ended:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return slotConn{conn, l.quiet, sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close ends a wait for one of the connections too.
func (l limited) Close() error {
	l.end()
	return l.Listener.Close()
}

// slotConn is a connection that gives its place back, and does not wait for ever for a client that does not read.
type slotConn struct {
	net.Conn
	quiet time.Duration
	free  func()
}

func (c slotConn) Write(p []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.quiet)) // one that is closed says so when it is written to
	return c.Conn.Write(p)
}

func (c slotConn) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

func (c slotConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
