package egress_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/bridge/egress"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
)

// proxyFixture is the proxy with a running gate behind it, for the commands of chat c1. The one rule it has allows
// *.test.example.
type proxyFixture struct {
	*egress.Server
	t           testing.TB
	nc          *nats.Conn
	log         *log.Log
	permissions *permission.Permissions
	address     string
	logged      *expect.Buffer
}

const alice = "user:alice"

func open(t testing.TB, mode permission.NetworkMode) *proxyFixture {
	return openFor(t, mode, time.Minute, 0, 0)
}

// openFor opens a proxy with short times: to wait for a person, for a connection in which nothing passes, and for a
// request.
func openFor(t testing.TB, mode permission.NetworkMode, patience, quiet, requests time.Duration) *proxyFixture {
	t.Helper()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	eventLog := eventstest.Open(t, nc)
	permissions := &permission.Permissions{Log: eventLog}
	_, _, err := (&chat.Chats{Log: eventLog}).Create(t.Context(), chat.Create{Chat: "c1"})
	is.NoErr(err)
	gate := permission.Gate{
		Permissions: permissions, Records: recordtype.Open(eventLog, recordtype.Machine{}), Rules: []policy.Rule{{Permission: "network", Pattern: "*.test.example"}}, Workspace: func(string) string { return "/" }, Logger: slog.New(slog.DiscardHandler),
		Session: func(string) (permission.Session, bool) { return permission.Session{}, false },
		Call: func(context.Context, string, events.Call, time.Duration) (permission.Call, bool) {
			return permission.Call{}, false
		},
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	w := &proxyFixture{t: t, nc: nc, log: eventLog, permissions: permissions, address: l.Addr().String(),
		logged: &expect.Buffer{}}
	network := &network.Sandbox{Gate: gate, Mode: mode, Proxy: w.address, Tail: log.NewTail(eventLog)}
	logger := slog.New(slog.NewTextHandler(w.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.Server = (&egress.Server{Network: network, Logger: logger}).ForTests(resolver(t), patience)
	w.QuietFor(quiet)
	w.RequestsWithin(requests)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 3)
	for _, run := range []func(context.Context) error{
		gate.Run, network.Tail.Run, func(ctx context.Context) error { return w.Serve(ctx, l) },
	} {
		go func() { ended <- run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range cap(ended) {
			<-ended
		}
	})
	return w
}

// begin gives a command a network, and the URL of its proxy.
func (w *proxyFixture) begin(exec string) *url.URL {
	w.t.Helper()
	is := is.New(w.t)
	proxy, err := w.Network.For(w.t.Context(), "c1", events.ExecRequested{Exec: exec, Command: "npm install"})
	is.NoErr(err)
	u, err := url.Parse(proxy)
	is.NoErr(err)
	return u
}

// client is a program that uses the proxy, as curl would.
func client(proxy *url.URL) *http.Client {
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}}
}

// say sends bytes to the proxy and gives its whole answer.
func (w *proxyFixture) say(format string, args ...any) string {
	w.t.Helper()
	is := is.New(w.t)
	conn, err := net.Dial("tcp", w.address)
	is.NoErr(err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, format, args...)
	is.NoErr(err)
	is.NoErr(conn.SetReadDeadline(time.Now().Add(time.Minute)))
	answer, err := io.ReadAll(bufio.NewReader(conn))
	is.NoErr(err)
	return string(answer)
}

// listen gives the test the connections to host, a name with a port.
func (w *proxyFixture) listen(host string) net.Listener {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	is.New(w.t).NoErr(err)
	w.t.Cleanup(func() { l.Close() })
	w.Instead(host, l.Addr().String())
	return l
}

// tunnel asks the proxy for a tunnel to host, and says more without waiting for its answer.
func (w *proxyFixture) tunnel(proxy *url.URL, host, more string) net.Conn {
	w.t.Helper()
	return w.raw(connectTo(proxy, host) + more)
}

// raw is a connection to the proxy on which something was said.
func (w *proxyFixture) raw(want string) net.Conn {
	w.t.Helper()
	is := is.New(w.t)
	conn, err := net.Dial("tcp", w.address)
	is.NoErr(err)
	w.t.Cleanup(func() { conn.Close() })
	_, err = io.WriteString(conn, want)
	is.NoErr(err)
	return conn
}

func connectTo(proxy *url.URL, host string) string {
	return fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: a\r\nProxy-Authorization: Basic %s\r\n\r\n", host, credentials(proxy))
}

func credentials(proxy *url.URL) string {
	return base64.StdEncoding.EncodeToString([]byte(proxy.User.String()))
}

func (w *proxyFixture) connected() (all []events.ExecConnected) {
	w.t.Helper()
	_, err := w.log.Fold(w.t.Context(), events.ChatSubject("c1", events.ExecConnected{}.Kind()), 0,
		func(e events.Event) error {
			d, err := events.Decode(e)
			all = append(all, d.(events.ExecConnected))
			return err
		})
	is.New(w.t).NoErr(err)
	return all
}

// hostRequest waits for the n-th ask that is left to a person.
func (w *proxyFixture) hostRequest(n int) (permission string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	err := w.log.Read(ctx, 0, []string{events.ChatSubject("c1", events.PermissionReferred{}.Kind())},
		func(b log.Batch) error {
			for _, e := range b.Events {
				d, err := events.Decode(e)
				if err != nil {
					return err
				}
				if n--; n == 0 {
					permission = d.(events.PermissionReferred).Permission
					return events.ErrStop
				}
			}
			return nil
		})
	is.New(w.t).NoErr(err)
	return permission
}

func (w *proxyFixture) decide(permissionID string, d events.Decision) {
	w.t.Helper()
	_, err := w.permissions.Decide(w.t.Context(), permission.Decide{Command: handlers.Command{Actor: alice}, Chat: "c1",
		Permission: permissionID, Decision: d})
	is.New(w.t).NoErr(err)
}

// resolver asks a name server of ours, for which a-b-c-d.… is at a.b.c.d, and nothing else exists.
func resolver(t testing.TB) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	is.New(t).NoErr(err)
	t.Cleanup(func() { conn.Close() })
	go func() {
		b := make([]byte, 1<<10)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if a := answerTo(b[:n]); a != nil {
				conn.WriteTo(a, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// answerTo answers a question for an A record (RFC 1035, 4).
func answerTo(q []byte) []byte {
	if len(q) < 17 {
		return nil
	}
	end := 12
	for end < len(q) && q[end] != 0 {
		end += int(q[end]) + 1
	}
	if end += 5; end > len(q) {
		return nil
	}
	label := string(q[13 : 13+q[12]])
	ip, err := netip.ParseAddr(strings.ReplaceAll(label, "-", "."))
	a := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end]...)
	switch isA := binary.BigEndian.Uint16(q[end-4:]) == 1; {
	case err != nil:
		a[3] = 0x83 // no such name
	case isA:
		a[7] = 1
		a = append(a, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4)
		a = append(a, ip.AsSlice()...)
	}
	return a
}
