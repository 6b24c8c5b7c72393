package webtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"pocketcoder/handlers"
	"pocketcoder/handlers/exec"
)

// fakeSandbox is what runs as far as the API asks: executions that take signals, and servers at ports of chats.
type fakeSandbox struct {
	Mu      sync.Mutex
	runs    map[string]bool
	Signals []exec.Signal
	Servers map[string]string // "<chat> <port>" -> address
}

// Running starts an execution that receives signals.
func (s *System) Running(exec string) {
	s.Sandbox.Mu.Lock()
	defer s.Sandbox.Mu.Unlock()
	if s.Sandbox.runs == nil {
		s.Sandbox.runs = map[string]bool{}
	}
	s.Sandbox.runs[exec] = true
}

func (b *fakeSandbox) signal(_ context.Context, c exec.Signal) (uint64, error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	switch {
	case c.Signal != "" && !slices.Contains(exec.Signals, exec.SignalName(c.Signal)):
		return 0, handlers.Refused{Code: handlers.Invalid, Text: "signal: want another", Field: "signal"}
	case !b.runs[c.Execution]:
		return 0, handlers.Refused{Code: handlers.Conflict, Text: "execution " + c.Execution + " is not running"}
	}
	b.Signals = append(b.Signals, c)
	return 1, nil
}

// Serve serves a handler like a command of a chat does, and returns the port.
func (s *System) Serve(t testing.TB, chat string, h http.Handler) (port int) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	address := server.Listener.Addr().(*net.TCPAddr)
	s.Sandbox.Mu.Lock()
	defer s.Sandbox.Mu.Unlock()
	if s.Sandbox.Servers == nil {
		s.Sandbox.Servers = map[string]string{}
	}
	s.Sandbox.Servers[fmt.Sprint(chat, " ", address.Port)] = address.String()
	return address.Port
}

func (b *fakeSandbox) dial(ctx context.Context, chat string, port int) (net.Conn, error) {
	b.Mu.Lock()
	address, ok := b.Servers[fmt.Sprint(chat, " ", port)]
	b.Mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("%w: no command of the chat runs in the background", exec.ErrNotServed)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// Sha256Of is the SHA-256 of a text, in hex.
func Sha256Of(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}
