package exec

import (
	"cmp"
	"context"
	"sync"
	"time"

	"pocketcoder/handlers"
)

// How many commands run at once. A worker runs 64 of all chats, unless its flag --capacity says otherwise. Detached
// commands and shells last: they may run for days. Few wait for a place, because each that waits has one of the 512
// connections of pocketcoder-shell. The chats without an owner share what an account gets.
const (
	chatShare           = 16
	accountShare        = 48
	lastingChatShare    = 8
	lastingAccountShare = 24
	waitingChatShare    = 48
	waitingAccountShare = 96
)

// lastingPatience is how long a lasting command waits for a place before it is refused.
const lastingPatience = 10 * time.Second

// shares keep one chat, and one account, from taking all places of the workers. The zero value is ready.
type shares struct {
	patience time.Duration // 0 for lastingPatience

	mu sync.Mutex
	// places by chat and by account: of all commands that run, of the lasting ones, of those that wait
	held    map[string]int
	changed chan struct{} // closed when a place is free
}

// take takes a place for a command, and returns the function that frees it. It waits until there is one or ctx ends.
// It refuses a command if too many wait already, and a lasting command that has waited long enough, because the
// commands before it may never end.
func (s *shares) take(ctx context.Context, chat, owner string, lasting bool) (leave func(), err error) {
	limits := limitsOf(chat, owner, lasting)
	if _, ok := s.tryTake(limits); ok {
		return func() { s.leave(limits) }, nil
	}
	waiting := map[string]int{"waiting/chat/" + chat: waitingChatShare, "waiting/account/" + owner: waitingAccountShare}
	if _, ok := s.tryTake(waiting); !ok {
		return func() {}, handlers.Refuse(handlers.Conflict,
			"Too many commands wait already. Of a chat %d may wait, of an account %d. "+
				"Call again when some have ended.", waitingChatShare, waitingAccountShare)
	}
	defer s.leave(waiting)
	var refuse <-chan time.Time
	if lasting {
		refuse = time.After(cmp.Or(s.patience, lastingPatience))
	}
	for {
		changed, ok := s.tryTake(limits)
		if ok {
			return func() { s.leave(limits) }, nil
		}
		select {
		case <-changed:
		case <-refuse:
			return func() {}, handlers.Refuse(handlers.Conflict,
				"Too many commands run already. A chat may have %d detached commands and shells, an account %d. "+
					"End one with: pocketcoder sandbox kill ID (pocketcoder sandbox ps lists them).", lastingChatShare,
				lastingAccountShare)
		case <-ctx.Done():
			return func() {}, nil
		}
	}
}

// limitsOf returns how many commands may run of each kind that a command belongs to.
func limitsOf(chat, owner string, lasting bool) map[string]int {
	limits := map[string]int{"chat/" + chat: chatShare, "account/" + owner: accountShare}
	if lasting {
		limits["lasting/chat/"+chat], limits["lasting/account/"+owner] = lastingChatShare, lastingAccountShare
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
