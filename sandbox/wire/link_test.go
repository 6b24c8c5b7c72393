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
}

func newLink(t testing.TB, url string) *link {
	t.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	l := &link{url: "nats://" + listener.Addr().String()}
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
			l.mu.Unlock()
			for to, from := range map[net.Conn]net.Conn{here: there, there: here} {
				go func() {
					io.Copy(to, from)
					to.Close()
				}()
			}
		}
	}()
	return l
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
