package pages_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// network is the network between a browser and a system. It passes connections on, unless it is cut or silent.
type network struct {
	URL string // of the system, over this network

	system string
	quiet  sync.RWMutex // locked while the network is silent

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

// newNetwork starts a network to a system. It ends with the test.
func newNetwork(t *testing.T, url string) *network {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &network{URL: "http://" + listener.Addr().String(), system: strings.TrimPrefix(url, "http://")}
	go n.serve(listener)
	t.Cleanup(func() { listener.Close(); n.set(true) })
	return n
}

func (n *network) serve(listener net.Listener) {
	for {
		in, err := listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", n.system)
		if err != nil {
			in.Close()
			continue
		}
		n.mu.Lock()
		if n.cut {
			in.Close()
			out.Close()
		} else {
			n.conns = append(n.conns, in, out)
			go n.copy(in, out)
			go n.copy(out, in)
		}
		n.mu.Unlock()
	}
}

// copy passes data on until either side ends the connection, and ends the other one.
func (n *network) copy(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		read, err := from.Read(buffer)
		n.quiet.RLock()
		_, failed := to.Write(buffer[:read])
		n.quiet.RUnlock()
		if err != nil || failed != nil {
			return
		}
	}
}

// silence holds all data back without closing a connection, as a broken radio link does, or lets it pass again.
func (n *network) silence(on bool) {
	if on {
		n.quiet.Lock()
	} else {
		n.quiet.Unlock()
	}
}

// set cuts the network, or connects it again.
func (n *network) set(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
	for _, conn := range n.conns {
		conn.Close()
	}
	n.conns = nil
}

// delaying is a server before a system. It delivers decisions also if the browser has gone.
type delaying struct {
	URL string
	// held decisions wait before the delivery, or for their answer, until it is closed
	before, after atomic.Pointer[chan struct{}]
	statuses      chan int // of held decisions, as the system answered them
}

// newDelaying starts the server. It ends with the test.
func newDelaying(t *testing.T, system http.Handler) *delaying {
	t.Helper()
	d := &delaying{statuses: make(chan int, 100)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before, after := d.before.Load(), d.after.Load()
		if r.Method != "POST" || !strings.Contains(r.URL.Path, "/requests/") || before == nil && after == nil {
			system.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the browser had gone before it was sent
		}
		r = r.WithContext(context.WithoutCancel(r.Context()))
		r.Body = io.NopCloser(bytes.NewReader(body))
		if before != nil {
			<-*before
			until, _ := strconv.ParseInt(r.Header.Get("Pocketcoder-Deadline"), 10, 64)
			<-time.After(time.Until(time.UnixMilli(until + 1)))
		}
		answer := httptest.NewRecorder()
		system.ServeHTTP(answer, r)
		d.statuses <- answer.Code
		if after != nil {
			<-*after
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	d.URL = server.URL
	return d
}

// hold holds the next decisions before the delivery, or after it, until release is called.
func hold(at *atomic.Pointer[chan struct{}]) (release func()) {
	held := make(chan struct{})
	at.Store(&held)
	return sync.OnceFunc(func() { at.Store(nil); close(held) })
}
