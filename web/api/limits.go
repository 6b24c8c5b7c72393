package api

import (
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate limit of one address on the routes that check a password or a token. Each account also has its own back-off,
// which applies from every address.
const (
	authRate  = 2
	authBurst = 20

	maxAddresses = 10_000 // remembered at once
)

// limits has a rate limiter for each address. The zero value is ready.
type limits struct {
	mu sync.Mutex
	by map[string]*rate.Limiter
}

// Limit refuses an address that has used routes which check a password or a token too often.
func (s *Server) Limit(address string) error { return s.limits.allow(address) }

func (l *limits) allow(address string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter, ok := l.by[address]
	if !ok {
		if l.by == nil || len(l.by) >= maxAddresses {
			l.removeIdle()
		}
		limiter = rate.NewLimiter(authRate, authBurst)
		l.by[address] = limiter
	}
	if !limiter.Allow() {
		return Problem{Status: http.StatusTooManyRequests, Message: "Too Many Requests.", Retry: time.Second}
	}
	return nil
}

// removeIdle removes the addresses whose limiter is full again. If none is, it removes all.
func (l *limits) removeIdle() {
	kept := map[string]*rate.Limiter{}
	for address, limiter := range l.by {
		if limiter.Tokens() < authBurst {
			kept[address] = limiter
		}
	}
	if len(kept) >= maxAddresses {
		kept = map[string]*rate.Limiter{}
	}
	l.by = kept
}
