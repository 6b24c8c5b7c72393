package exec

import (
	"context"
	"sync"

	"pocketcoder/handlers"
)

// How many commands run at once. A worker runs 64 of all chats, unless its flag --capacity says otherwise.
const (
	chatShare    = 16 // of one chat; more wait
	lastingShare = 8  // detached commands and shells of one chat; more are refused, because nothing ends them
	accountShare = 48 // of all chats of one account; more wait
)

// shares keep one chat, and one account, from taking all places of the workers. The zero value is ready.
type shares struct {
	mu      sync.Mutex
	held    map[string]int // places by chat, by account and by chat for lasting commands
	changed chan struct{}  // closed when a place is free
}

// take takes a place for a command, and returns the function that frees it. It waits until there is one or ctx ends. A lasting
// command does not wait: take refuses it. Chats without an owner have no account.
func (s *shares) take(ctx context.Context, chat, owner string, lasting bool) (leave func(), err error) {
	limits := limitsOf(chat, owner, lasting)
	for {
		changed, ok := s.tryTake(limits)
		switch {
		case ok:
			return func() { s.leave(limits) }, nil
		case lasting:
			return func() {}, handlers.Refuse(handlers.Conflict, "Too many commands run already: a chat may have %d detached commands and shells, and %d commands in all; an account may have %d. "+
				"End one with: pocketcoder sandbox kill ID (pocketcoder sandbox ps lists them).", lastingShare, chatShare, accountShare)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return func() {}, nil
		}
	}
}

// limitsOf returns how many commands may run of each kind that a command belongs to.
func limitsOf(chat, owner string, lasting bool) map[string]int {
	limits := map[string]int{"chat/" + chat: chatShare}
	if owner != "" {
		limits["account/"+owner] = accountShare
	}
	if lasting {
		limits["lasting/"+chat] = lastingShare
	}
	return limits
}

// tryTake takes a place of each kind, or none. Without one it returns a channel that is closed when a place is free.
func (s *shares) tryTake(limits map[string]int) (changed <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held, s.changed = map[string]int{}, make(chan struct{})
	}
	for kind, limit := range limits {
		if s.held[kind] >= limit {
			return s.changed, false
		}
	}
	for kind := range limits {
		s.held[kind]++
	}
	return nil, true
}

func (s *shares) leave(limits map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind := range limits {
		if s.held[kind]--; s.held[kind] == 0 {
			delete(s.held, kind)
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
}
