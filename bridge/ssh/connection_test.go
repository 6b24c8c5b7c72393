package ssh

import (
	"fmt"
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
	for port := range maxWaitingFrom {
		_, ok := come(1, port)
		is.True(ok)
	}
	_, ok := come(1, maxWaitingFrom)
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

func TestWaitForAnExpiryIsCutShort(t *testing.T) {
	is := is.New(t)
	now := time.Now()
	is.Equal(pause(now, now.Add(time.Hour)), keysWait)
	is.Equal(pause(now, now.Add(time.Second)), time.Second)
}
