package exec

import (
	"cmp"
	"context"
	"sync"
	"time"

	"pocketcoder/handlers"
)

// Limits of concurrent commands, for each chat and each account. A worker runs 64 commands of all chats, or as many as
// its flag --capacity says. Detached commands and shells count as lasting, because they may run for days. Few commands
// wait, because each holds one of the 512 connections of pocketcoder-shell. All chats without an owner share the limits
// of one account.
const (
	chatShare           = 16
	accountShare        = 48
	lastingChatShare    = 8
	lastingAccountShare = 24
	waitingChatShare    = 48
	waitingAccountShare = 96
)

// lastingPatience is how long a lasting command waits before it is refused.
const lastingPatience = 10 * time.Second

// shares keeps one chat, or one account, from using all slots of the workers. The zero value is ready.
type shares struct {
	patience time.Duration // 0 for lastingPatience

	mu sync.Mutex
	// slots in use, by chat and by account: of all commands, of lasting commands, of commands that wait
	held    map[string]int
	changed chan struct{} // closed when a slot is free
}

// take reserves a slot for a command, and returns the function that frees it. It waits until a slot is free or ctx
// ends. It refuses a command if too many wait already. It refuses a lasting command after lastingPatience, because the
// lasting commands before it may never end.
func (s *shares) take(ctx context.Context, chat, owner string, lasting bool) (leave func(), err error) {
	limits := limitsOf(chat, owner, lasting)
	if _, ok := s.tryTake(limits); ok {
		return func() { s.leave(limits) }, nil
	}
	waiting := map[string]int{"waiting/chat/" + chat: waitingChatShare, "waiting/account/" + owner: waitingAccountShare}
	if _, ok := s.tryTake(waiting); !ok {
		return func() {}, handlers.Refuse(handlers.Conflict,
			"Too many commands wait already. A chat may have %d waiting commands, an account %d. "+
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

// limitsOf returns the limits that apply to a command, by kind.
func limitsOf(chat, owner string, lasting bool) map[string]int {
	limits := map[string]int{"chat/" + chat: chatShare, "account/" + owner: accountShare}
	if lasting {
		limits["lasting/chat/"+chat], limits["lasting/account/"+owner] = lastingChatShare, lastingAccountShare
	}
	return limits
}

// tryTake reserves a slot of each kind, or none. If a kind has no free slot, it returns a channel that is closed when
// one is free.
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
