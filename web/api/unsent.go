package api

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// An answer is in memory until its client has read it. Without a limit, an account that sends many requests and reads
// slowly would fill the memory of the machine.
const (
	maxUnsent = 128 << 20 // bytes of all answers to one account at once, four of the largest lists

	answerTimeout = time.Minute // for a whole answer, and a second more for each answerRate bytes
	answerRate    = 1_000_000
)

// unsentBytes counts the bytes that wait for the clients of each account, by Caller.Key. The zero value is ready.
type unsentBytes struct {
	mu    sync.Mutex
	byKey map[string]int
}

// reserve counts an answer of n bytes until release is called. It refuses an answer that exceeds maxUnsent together
// with the others of the key.
func (a *unsentBytes) reserve(key string, n int) (release func(), err error) {
	if !a.add(key, n) {
		return nil, Problem{Status: http.StatusTooManyRequests, Retry: 10 * time.Second,
			Message: fmt.Sprintf("Answers to one account are at most %d MiB at once. Read the others first. A change that this request made remains.", maxUnsent>>20)}
	}
	return func() { a.remove(key, n) }, nil
}

// add counts n bytes until they are removed. It returns false, and counts nothing, if they exceed maxUnsent together
// with the others of the key. A single answer above the limit, such as the replay of a very long chat, is accepted if
// it is the only one.
func (a *unsentBytes) add(key string, n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byKey[key] > 0 && a.byKey[key]+n > maxUnsent {
		return false
	}
	if a.byKey == nil {
		a.byKey = map[string]int{}
	}
	a.byKey[key] += n
	return true
}

func (a *unsentBytes) remove(key string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if left := a.byKey[key] - n; left > 0 {
		a.byKey[key] = left
	} else {
		delete(a.byKey, key)
	}
}

// AddUnsent counts n bytes of events that wait for a client, together with the answers to the same Caller.Key. It
// returns false, and counts nothing, if they exceed the limit. The caller must remove them with RemoveUnsent.
func (s *Server) AddUnsent(key string, n int) bool { return s.unsent.add(key, n) }

// RemoveUnsent removes bytes that AddUnsent counted.
func (s *Server) RemoveUnsent(key string, n int) { s.unsent.remove(key, n) }
