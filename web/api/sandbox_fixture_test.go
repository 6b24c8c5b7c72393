package api_test

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
)

// sandboxed is what runs as far as the API asks: executions that take signals, and servers at ports of chats.
type sandboxed struct {
	mu      sync.Mutex
	runs    map[string]bool
	signals []handlers.SignalExecution
	servers map[string]string // "<chat> <port>" -> address
}

// running lets an execution take signals.
func (s *system) running(exec string) {
	s.sandbox.mu.Lock()
	defer s.sandbox.mu.Unlock()
	if s.sandbox.runs == nil {
		s.sandbox.runs = map[string]bool{}
	}
	s.sandbox.runs[exec] = true
}

func (b *sandboxed) signal(_ context.Context, c handlers.SignalExecution) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case c.Signal != "" && !slices.Contains(handlers.Signals, handlers.SignalName(c.Signal)):
		return 0, handlers.Refused{Code: handlers.Invalid, Text: "signal: want another", Field: "signal"}
	case !b.runs[c.Execution]:
		return 0, handlers.Refused{Code: handlers.Conflict, Text: "execution " + c.Execution + " is not running"}
	}
	b.signals = append(b.signals, c)
	return 1, nil
}

// serve lets a handler be what a chat's command serves, and gives the port.
func (s *system) serve(t testing.TB, chat string, h http.Handler) (port int) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	address := server.Listener.Addr().(*net.TCPAddr)
	s.sandbox.mu.Lock()
	defer s.sandbox.mu.Unlock()
	if s.sandbox.servers == nil {
		s.sandbox.servers = map[string]string{}
	}
	s.sandbox.servers[fmt.Sprint(chat, " ", address.Port)] = address.String()
	return address.Port
}

func (b *sandboxed) dial(ctx context.Context, chat string, port int) (net.Conn, error) {
	b.mu.Lock()
	address, ok := b.servers[fmt.Sprint(chat, " ", port)]
	b.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("%w: no command of the chat runs in the background", handlers.ErrNotServed)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

func sha256Of(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}
