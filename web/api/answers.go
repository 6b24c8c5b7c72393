package api

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// An answer is in memory until its client has taken it. Without a bound, an account that asks much and reads slowly
// would fill the memory of the machine.
const (
	maxHeld = 128 << 20 // bytes of all answers to one account at once, four of the largest lists

	answerPatience = time.Minute // for a whole answer, and a second more for each answerRate bytes
	answerRate     = 1_000_000
)

// answers counts the bytes that wait for the clients of each account, by Caller.Key. The zero value is ready.
type answers struct {
	mu   sync.Mutex
	held map[string]int
}

// hold counts an answer of n bytes until release is called. It refuses an answer that is too much together with the
// others of the holder.
func (a *answers) hold(holder string, n int) (release func(), err error) {
	if !a.add(holder, n) {
		return nil, Problem{Status: http.StatusTooManyRequests, Retry: 10 * time.Second,
			Message: fmt.Sprintf("Answers to one account are at most %d MiB at once. Read the others first. A change that this request made remains.", maxHeld>>20)}
	}
	return func() { a.remove(holder, n) }, nil
}

// add counts n bytes until they are removed. It returns false, and counts nothing, if they are too much together with
// the others of the holder. What is too much by itself, such as the replay of a very long chat, is counted alone.
func (a *answers) add(holder string, n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held[holder] > 0 && a.held[holder]+n > maxHeld {
		return false
	}
	if a.held == nil {
		a.held = map[string]int{}
	}
	a.held[holder] += n
	return true
}

func (a *answers) remove(holder string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if left := a.held[holder] - n; left > 0 {
		a.held[holder] = left
	} else {
		delete(a.held, holder)
	}
}

// AddUnsent counts n bytes of events that wait for a client, together with the answers to the same holder. It returns
// false, and counts nothing, if they are too much. The caller must remove them with RemoveUnsent.
func (s *Server) AddUnsent(holder string, n int) bool { return s.answers.add(holder, n) }

// RemoveUnsent removes bytes that AddUnsent counted.
func (s *Server) RemoveUnsent(holder string, n int) { s.answers.remove(holder, n) }
