package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"pocketcoder/handlers/network"
	"pocketcoder/handlers/policy"
)

type connection struct {
	*Server
	client client
	at     policy.Address
}

// ForbiddenError is the error for an address that may not be dialled.
type ForbiddenError struct{ error }

// Guard returns the Control function of a net.Dialer. It sees each address just before it is dialled, so no name can
// resolve to an unchecked address. If allowed returns an error, the dial fails with a ForbiddenError.
func Guard(allowed func(netip.Addr) error) func(network, address string, c syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err == nil {
			err = allowed(at.Addr().Unmap().WithZone(""))
		}
		if err != nil {
			return ForbiddenError{err}
		}
		return nil
	}
}

// Public is a function for Guard. It allows public addresses, except those of this machine's own network interfaces,
// because a server that listens there may trust local callers. It reads the interfaces on each call, because their
// addresses change.
func Public(a netip.Addr) error {
	if !policy.IsPublic(a) {
		return fmt.Errorf("%s is not a public address", a)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("read the addresses of this machine, to compare %s with them: %w", a, err)
	}
	for _, address := range own {
		if prefix, ok := address.(*net.IPNet); ok && prefix.IP.Equal(a.AsSlice()) {
			return fmt.Errorf("%s is an address of this machine", a)
		}
	}
	return nil
}

// dial connects to the address. A final dot makes the name absolute, so that no search domain is appended.
func (c connection) dial(ctx context.Context) (net.Conn, error) {
	host := c.at.Host
	if _, err := netip.ParseAddr(host); err != nil && !c.client.Private(c.at) {
		host += "."
	}
	dialer, address := net.Dialer{Timeout: dialTime, Resolver: c.resolver, Control: Guard(Public)},
		net.JoinHostPort(host, strconv.Itoa(int(c.at.Port)))
	if c.client.Private(c.at) {
		dialer.Control = nil
	}
	if to, ok := c.redirects[c.at.String()]; ok {
		dialer.Control, address = nil, to
	}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	forbidden := ForbiddenError{}
	switch {
	case errors.As(err, &forbidden):
		return nil, c.client.RecordBlocked(ctx, c.at, forbidden)
	case err != nil:
		return nil, err
	}
	return idleConn{conn, cmp.Or(c.idleTimeout, idleTime)}, nil
}

// tunnel copies between the command and the address in both directions.
func (c connection) tunnel(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	there, err := c.dial(ctx)
	if err != nil {
		c.refuse(w, r, c.at.String(), err)
		return
	}
	defer there.Close()
	hijacked, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	here := idleConn{hijacked, cmp.Or(c.idleTimeout, idleTime)}
	defer here.Close()
	stop := context.AfterFunc(ctx, func() {
		here.Close()
		there.Close()
	})
	defer stop()
	if _, err := io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	// no more: at an end it would cancel the request
	early := io.LimitReader(buffered.Reader, int64(buffered.Reader.Buffered()))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		copyAll(there, io.MultiReader(early, here), here)
	}()
	copyAll(here, there, there)
	<-sent
}

// copyAll copies until the source ends, and then closes the writing side of the other. It closes the source if the
// other side is gone or if no data arrives for too long.
func copyAll(to net.Conn, from io.Reader, source net.Conn) {
	_, err := io.Copy(to, from)
	half, ok := to.(interface{ CloseWrite() error })
	if err != nil || !ok || half.CloseWrite() != nil {
		to.Close()
		source.Close()
	}
}

// idleConn is a connection that ends after a time without data in both directions.
type idleConn struct {
	net.Conn
	time time.Duration
}

func (c idleConn) Read(p []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(c.time)) // one that is closed says so when it is read
	return c.Conn.Read(p)
}

func (c idleConn) Write(p []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(c.time))
	return c.Conn.Write(p)
}

func (c idleConn) CloseWrite() error { return c.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// upload is the body of a request.
type upload struct {
	io.ReadCloser
	isWhole atomic.Bool // it was read to its end
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if err == io.EOF {
		u.isWhole.Store(true)
	}
	return n, err
}

// limitRest has what is left come soon, when it has been answered. Who still waits for a part of it is done with first:
// else net/http would end that wait, and our deadline with it.
func (u *upload) limitRest(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now())
	_, _ = u.Read(make([]byte, 1))
	expectRest(w, r)
}

// forward forwards one request and its response. Each request has a connection of its own. The client's connection is
// closed when the command ends.
func (c connection) forward(w http.ResponseWriter, r *http.Request) {
	client := r.Context().Value(connKey{}).(net.Conn)
	stop := context.AfterFunc(r.Context(), func() { client.Close() })
	defer stop()
	scheme, port := "http", ":80"
	var used []network.Credential
	engine, isEngine := c.client.(Engine)
	if isEngine {
		used = engine.Authorize(c.at, r.Header)
	}
	if slices.ContainsFunc(used, func(k network.Credential) bool { return k.TLS }) {
		scheme, port = "https", ":443"
	}
	body := &upload{ReadCloser: r.Body}
	body.isWhole.Store(r.ContentLength == 0)
	r.Body = body
	// else net/http sends no response before the whole request has arrived; HTTP/1 supports it
	_ = http.NewResponseController(w).EnableFullDuplex()
	transport := &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader, TLSClientConfig: &tls.Config{RootCAs: c.Roots},
	}
	defer transport.CloseIdleConnections()
	(&httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: c.debugLog(),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.URL.RawQuery = scheme, c.at.String(), p.In.URL.RawQuery
			p.Out.Host = strings.TrimSuffix(c.at.String(), port)
			p.Out.Header.Del("Connection") // the proxy takes these away, but for a change of protocol
			p.Out.Header.Del("Upgrade")
		},
		ModifyResponse: func(answer *http.Response) error {
			for _, k := range used {
				if engine.Answered != nil {
					engine.Answered(k, answer.StatusCode)
				}
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { c.refuse(w, r, c.at.String(), err) },
	}).ServeHTTP(w, r)
	if stop(); !body.isWhole.Load() {
		body.limitRest(w, r)
	}
}

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
