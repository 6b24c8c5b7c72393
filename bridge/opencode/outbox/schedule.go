package outbox

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"pocketcoder/projections"
	"pocketcoder/projections/pending"
	"pocketcoder/projections/turns"
)

// CarryOut carries out effects until ctx ends. It looks for open effects when an event may have changed them, when a try has ended, and
// when a failed one may be tried again.
func (o *Outbox) CarryOut(ctx context.Context) error {
	s := &schedule{
		Outbox: o, ended: make(chan attempt), busy: map[string]bool{}, sending: map[string]string{}, tried: map[string]tried{},
	}
	for {
		woken, reconnected := o.Model.Woken(), o.Reconnected()
		if err := o.WaitConnected(ctx); err != nil { // to try without OpenCode would only use up the tries
			return err
		}
		if err := s.start(ctx, woken); err != nil {
			return err
		}
		if err := s.wait(ctx, woken, reconnected); err != nil {
			return err
		}
	}
}

// schedule decides when which effect is tried. It remembers nothing that a new process would need.
type schedule struct {
	*Outbox
	ended   chan attempt
	busy    map[string]bool   // chats with an effect under way
	sending map[string]string // those of them with a message under way, and their owners
	tried   map[string]tried  // open effects that were tried, by key
	now     time.Time         // when due looked
}

// effect is something that OpenCode has yet to be told about a chat.
type effect struct {
	key      string // kind and id
	chat     string
	seq      int64 // of the event that asked for it
	ordered  bool  // it waits for the ordered ones before it, unless it is an abort; later messages of its chat wait for it
	isAbort  bool
	into     string           // another chat whose later messages wait for it
	message  *pending.Message // nil for all but a message
	try      func(context.Context) error
	pause    time.Duration // before the next try
	previous tried
}

// attempt is an effect that was tried.
type attempt struct {
	effect
	last  bool   // of those that were started together
	woken uint64 // how often the read model had woken the outbox before
	err   error
}

// tried says of an open effect when it may be tried again.
type tried struct {
	times int
	after time.Time
	taken bool   // OpenCode has taken it; the event that ends the effect is still to come
	held  bool   // a budget holds it back until the read model has woken the outbox more often than this
	woken uint64 // see held
}

// errHeld means that a message has to wait because of a budget.
var errHeld = errors.New("held back by a budget")

// start tries the effects that are due, those of one chat one after the other.
func (s *schedule) start(ctx context.Context, woken uint64) error {
	open, err := s.openEffects(ctx)
	if err != nil {
		return err
	}
	due, err := s.due(ctx, open, woken)
	if err != nil {
		return err
	}
	for chat, effects := range due {
		s.busy[chat] = true
		go func() {
			for i, e := range effects {
				select {
				case s.ended <- attempt{e, i == len(effects)-1, woken, e.try(ctx)}:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return nil
}

// openEffects lists what is open, in log order. The commands are read last, so each that comes before a listed message is among them.
func (s *schedule) openEffects(ctx context.Context) (open []effect, err error) {
	for _, list := range []func(context.Context) ([]effect, error){s.messages, s.decisions, s.questions, s.commands} {
		effects, err := list(ctx)
		if err != nil {
			return nil, err
		}
		open = append(open, effects...)
	}
	slices.SortStableFunc(open, func(a, b effect) int { return cmp.Compare(a.seq, b.seq) })
	known := map[string]tried{}
	for i, e := range open {
		if t, was := s.tried[e.key]; was {
			known[e.key], open[i].previous = t, t
		}
	}
	s.tried = known // what is not open any more is done
	return open, nil
}

// due chooses by chat what may be tried now.
func (s *schedule) due(ctx context.Context, open []effect, woken uint64) (map[string][]effect, error) {
	running, err := turns.Running(ctx, s.Model, s.Engine)
	if err != nil {
		return nil, err
	}
	s.now = time.Now()
	due := map[string][]effect{}
	waits := map[string]bool{}     // chats with an open ordered effect before this one
	earlier := map[string]effect{} // messages before this one, by chat
	for _, e := range open {
		may := !s.busy[e.chat] && e.previous.mayRepeat(s.now, woken)
		if (e.ordered && !e.isAbort || e.message != nil) && waits[e.chat] {
			may = false
		}
		if e.ordered {
			waits[e.chat] = true
			waits[e.into] = true
		}
		if m := e.message; m != nil {
			before, isLater := earlier[e.chat]
			earlier[e.chat] = e
			switch {
			case isLater: // a budget may hold it back too, for a reason of its own
				may = may && before.previous.held && m.EngineMessage == ""
				e.try = func(ctx context.Context) error { return cmp.Or(s.hold(ctx, *m), errHeld) }
			case may:
				if may = m.Free && s.mayRun(m.ChatUser, running); may {
					s.sending[e.chat] = m.ChatUser
				}
			}
		}
		if may {
			due[e.chat] = append(due[e.chat], e)
		}
	}
	return due, nil
}

// mayRepeat reports whether what was tried, or never was, may be tried now.
func (t tried) mayRepeat(now time.Time, woken uint64) bool {
	return !t.taken && !(t.held && t.woken == woken) && !now.Before(t.after)
}

// mayRun reports whether a chat of an account may begin a turn. One account never takes the last quarter of the turns: it is for
// others.
func (s *schedule) mayRun(user string, running map[string]int) bool {
	if s.MaxTurns <= 0 {
		return true
	}
	all, own := len(s.sending), running[user]
	for _, n := range running {
		all += n
	}
	for _, owner := range s.sending {
		if owner == user {
			own++
		}
	}
	share := max(1, s.MaxTurns-s.MaxTurns/4)
	return all < s.MaxTurns && (user == "" || own < share)
}

// wait blocks until something may be due.
func (s *schedule) wait(ctx context.Context, woken uint64, reconnected <-chan struct{}) error {
	awake := make(chan error, 1)
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { awake <- s.Model.Awake(waiting, woken) }()
	next := untilTomorrow()
	tomorrow := time.Now().Add(next)
	for _, t := range s.tried {
		if t.after.After(s.now) {
			next = min(next, max(0, time.Until(t.after)))
		}
	}
	select {
	case a := <-s.ended:
		s.end(a)
	case <-awake:
	case <-reconnected: // a new OpenCode may take it at once
		for key, t := range s.tried {
			t.after = time.Time{}
			s.tried[key] = t
		}
	case <-time.After(next):
	}
	if !time.Now().Before(tomorrow) { // budgets of a day begin anew
		for key, t := range s.tried {
			t.held = false
			s.tried[key] = t
		}
	}
	return ctx.Err()
}

// end notes how a try went.
func (s *schedule) end(a attempt) {
	if a.last {
		delete(s.busy, a.chat)
	}
	if a.message != nil {
		delete(s.sending, a.chat)
	}
	t := a.previous
	switch {
	case a.err == nil:
		t.taken = true
	case errors.Is(a.err, errHeld):
		t.held, t.woken = true, a.woken
	default:
		s.Logger.Warn("tell opencode", "effect", a.key, "chat", a.chat, "try", t.times+1, "err", a.err)
		t.times, t.after = t.times+1, time.Now().Add(a.pause)
	}
	s.tried[a.key] = t
}

// commands lists the aborts, reverts and forks.
func (s *schedule) commands(ctx context.Context) (open []effect, err error) {
	all, err := pending.Effects(ctx, s.Model, s.Engine)
	for _, f := range all {
		carryOut := map[string]func(context.Context, projections.Effect) error{
			projections.EffectAbort: s.abort, projections.EffectRevert: s.revert, projections.EffectFork: s.fork,
		}[f.Kind]
		open = append(open, effect{
			key: f.Kind + "/" + f.ID, chat: f.Chat, seq: f.Position, isAbort: f.Kind == projections.EffectAbort, ordered: true, into: f.Into, pause: s.Pause,
			try: func(ctx context.Context) error { return s.settle(ctx, f, carryOut(ctx, f)) },
		})
	}
	return open, err
}
