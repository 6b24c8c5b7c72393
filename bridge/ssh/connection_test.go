package ssh

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/matryer/is"
)

func TestWhoDoesNotLogInShutsNobodyOut(t *testing.T) {
	is := is.New(t)
	var s *Server
	come := func(host, port int) (*connection, bool) {
		c := &connection{from: fmt.Sprintf("192.0.2.%d:%d", host, port)}
		return c, s.admit(c)
	}

	s = &Server{open: map[*connection]bool{}} // one address
	for port := range maxWaitingPerAddress {
		_, ok := come(1, port)
		is.True(ok)
	}
	_, ok := come(1, maxWaitingPerAddress)
	is.True(!ok)
	_, ok = come(2, 0) // has taken its own places
	is.True(ok)

	s = &Server{open: map[*connection]bool{}} // many
	var last *connection
	for i := range maxWaiting {
		last, ok = come(i, 0)
		is.True(ok)
	}
	_, ok = come(maxWaiting, 0)
	is.True(!ok)
	last.key = "SHA256:key" // one that logs in leaves a place
	_, ok = come(maxWaiting, 0)
	is.True(ok)

	s = &Server{open: map[*connection]bool{}} // and those who have logged in, all from one
	for port := range maxConnections {
		c, ok := come(1, port)
		is.True(ok)
		c.key = "SHA256:key"
	}
	_, ok = come(2, 0)
	is.True(!ok)
}

func TestAnAccountHasAShareOfTheConnections(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := &Server{open: map[*connection]bool{}, logger: slog.New(slog.DiscardHandler), lines: map[string]string{
		"SHA256:a1": `restrict,command="x" ssh-ed25519 A alice` + "\n", "SHA256:a2": `restrict,command="x" ssh-ed25519 B alice` + "\n",
		"SHA256:b": `restrict,command="x" ssh-ed25519 C bob` + "\n",
	}}
	come := func(key string) (isCut bool) {
		c := &connection{server: s, from: "192.0.2.1:1", cut: func() { isCut = true }}
		is.True(s.admit(c))
		fmt.Fprintf(c, "Accepted publickey for root from 192.0.2.1 port 1 ssh2: ED25519 %s\n", key)
		return isCut
	}
	is.True(!come("SHA256:a2"))
	for range maxPerAccount - 1 {
		is.True(!come("SHA256:a1"))
	}
	is.True(come("SHA256:a1"))
	is.True(come("SHA256:a2"))
	is.True(!come("SHA256:b"))
}

func TestWaitForAnExpiryIsCutShort(t *testing.T) {
	is := is.New(t)
	now := time.Now()
	is.Equal(pause(now, now.Add(time.Hour)), keysWait)
	is.Equal(pause(now, now.Add(time.Second)), time.Second)
}
