package egress

import (
	"net"
	"sync"
)

// limited is a listener of which only so many connections are open at a time. More wait in its backlog. Its connections can be
// closed in one direction, unlike those of golang.org/x/net/netutil.
type limited struct {
	net.Listener
	slots chan struct{}
	ended chan struct{}
	end   func() // closes ended, once
}

func limit(l net.Listener, most int) limited {
	ended := make(chan struct{})
	return limited{l, make(chan struct{}, most), ended, sync.OnceFunc(func() { close(ended) })}
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
	return counted{conn.(*net.TCPConn), sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close ends a wait for one of the connections too.
func (l limited) Close() error {
	l.end()
	return l.Listener.Close()
}

// counted is a connection that gives its place back.
type counted struct {
	*net.TCPConn
	free func()
}

func (c counted) Close() error {
	defer c.free()
	return c.TCPConn.Close()
}
