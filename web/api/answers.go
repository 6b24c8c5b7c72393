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

// answers counts the bytes of the answers that are being written, by Caller.Key. The zero value is ready.
type answers struct {
	mu   sync.Mutex
	held map[string]int
}

// hold counts an answer of n bytes until release is called. It refuses an answer that is too much together with the
// others of the holder. An answer that is too much by itself, such as the replay of a very long chat, is written alone.
func (a *answers) hold(holder string, n int) (release func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held[holder] > 0 && a.held[holder]+n > maxHeld {
		return nil, Problem{Status: http.StatusTooManyRequests, Retry: 10 * time.Second,
			Message: fmt.Sprintf("Answers to one account are at most %d MiB at once. Read the others first. A change that this request made remains.", maxHeld>>20)}
	}
	if a.held == nil {
		a.held = map[string]int{}
	}
	a.held[holder] += n
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.held[holder] -= n; a.held[holder] == 0 {
			delete(a.held, holder)
		}
	}, nil
}
