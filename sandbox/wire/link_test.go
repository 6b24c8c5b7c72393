package wire_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// link is a TCP proxy in front of a server. Its connections can be cut.
type link struct {
	url string

	mu    sync.Mutex
	conns []net.Conn
	held  chan struct{} // closed by hold for the current connections
}

func newLink(t testing.TB, url string) *link {
	t.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	l := &link{url: "nats://" + listener.Addr().String(), held: make(chan struct{})}
	t.Cleanup(func() {
		listener.Close()
		l.cut()
	})
	go func() {
		for {
			here, err := listener.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
			if err != nil {
				here.Close()
				continue
			}
			l.mu.Lock()
			l.conns = append(l.conns, here, there)
			held := l.held
			l.mu.Unlock()
			for to, from := range map[net.Conn]net.Conn{here: there, there: here} {
				go func() {
					io.Copy(heldWriter{to, held}, from)
					to.Close()
				}()
			}
		}
	}()
	return l
}

// heldWriter drops what is written after held is closed.
type heldWriter struct {
	net.Conn
	held <-chan struct{}
}

func (w heldWriter) Write(p []byte) (int, error) {
	select {
	case <-w.held:
		return len(p), nil
	default:
		return w.Conn.Write(p)
	}
}

// hold makes the current connections drop all data, until they are cut.
func (l *link) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.held)
	l.held = make(chan struct{})
}

// cut closes the current connections.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}
