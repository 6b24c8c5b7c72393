package egress

import (
	"net"
	"sync"
	"time"
)

// limitedListener is a listener with a limit of open connections. Further connections wait in the backlog. Unlike those
// of golang.org/x/net/netutil, its connections can be closed in one direction.
type limitedListener struct {
	net.Listener
	slots        chan struct{}
	writeTimeout time.Duration // how long a connection may take nothing of what is written
	ended        chan struct{}
	end          func() // closes ended
}

func limit(l net.Listener, most int, quiet time.Duration) limitedListener {
	ended := make(chan struct{})
	return limitedListener{l, make(chan struct{}, most), quiet, ended, sync.OnceFunc(func() { close(ended) })}
}

func (l limitedListener) Accept() (net.Conn, error) {
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
	return slotConn{conn, l.writeTimeout, sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close also ends a wait for a free slot.
func (l limitedListener) Close() error {
	l.end()
	return l.Listener.Close()
}

// slotConn is a connection that frees its slot when it is closed. Its writes have a time limit.
type slotConn struct {
	net.Conn
	writeTimeout time.Duration
	free         func()
}

func (c slotConn) Write(p []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.writeTimeout)) // one that is closed says so when it is written to
	return c.Conn.Write(p)
}

func (c slotConn) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

func (c slotConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
