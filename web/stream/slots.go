package stream

import (
	"net/http"
	"sync"
	"time"

	"pocketcoder/web/api"
)

// Slots limits how many streams or downloads each account has at once. The zero value is ready.
type Slots struct {
	mu   sync.Mutex
	used map[string]int // by Caller.Key
}

// Acquire occupies a slot of a caller until release is called. It refuses a caller that has limit slots already, with
// the text refusal.
func (s *Slots) Acquire(caller api.Caller, limit int, refusal string) (release func(), err error) {
	key := caller.Key()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[key] >= limit {
		return nil, api.Problem{Status: http.StatusTooManyRequests, Message: refusal, Retry: 10 * time.Second}
	}
	if s.used == nil {
		s.used = map[string]int{}
	}
	s.used[key]++
	return func() { s.release(key) }, nil
}

func (s *Slots) release(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[key]--; s.used[key] == 0 {
		delete(s.used, key)
	}
}
