package stream

import (
	"net/http"
	"sync"
	"time"

	"pocketcoder/web/api"
)

// Slots bounds how many streams or downloads each account has at once. The zero value is ready.
type Slots struct {
	mu   sync.Mutex
	used map[string]int // by Caller.Key
}

// Take takes a slot of a caller until release is called. A caller that has most slots already is refused with the text.
func (s *Slots) Take(caller api.Caller, most int, refusal string) (release func(), err error) {
	holder := caller.Key()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[holder] >= most {
		return nil, api.Problem{Status: http.StatusTooManyRequests, Message: refusal, Retry: 10 * time.Second}
	}
	if s.used == nil {
		s.used = map[string]int{}
	}
	s.used[holder]++
	return func() { s.release(holder) }, nil
}

func (s *Slots) release(holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[holder]--; s.used[holder] == 0 {
		delete(s.used, holder)
	}
}
