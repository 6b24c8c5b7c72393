package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"pocketcoder/bridge/opencode/snapshots"
	"pocketcoder/events"
	"pocketcoder/projections"
)

// CarryOut carries out effects until ctx ends. It looks for open effects when an event may have changed them, when a
// try has ended, and when a failed effect may be tried again.
func (o *Outbox) CarryOut(ctx context.Context) error {
	if err := o.endEarlierEffects(ctx); err != nil {
		return err
	}
	s := &schedule{
		Outbox: o, ended: make(chan attempt), busy: map[string]bool{}, sending: map[string]string{}, attempts: map[string]attemptState{},
	}
	for {
		if err := o.WaitConnected(ctx); err != nil { // a try without OpenCode is wasted
			return err
		}
		if err := s.start(ctx); err != nil {
			return err
		}
		if err := s.wait(ctx); err != nil {
			return err
		}
	}
}

// schedule decides which effects to try, and when. A new process needs none of its state.
type schedule struct {
	*Outbox
	ended    chan attempt
	busy     map[string]bool         // chats with an effect under way
	sending  map[string]string       // owners of the chats with a message under way, by chat
	next     []string                // owners of chats that wait only for a budget check: each reserves a turn
	attempts map[string]attemptState // open effects that were tried, by key

	// The state when the open effects were listed last.
	now         time.Time
	seq         uint64          // of the read model, which is lower for a while during a rebuild
	woken       uint64          // the value of Model.Woken
	reconnected <-chan struct{} // closed when OpenCode is connected again
}

// effect is an open effect of a chat, and how to try it.
type effect struct {
	key     string // kind and id
	kind    effectKind
	chat    string
	seq     int64                       // of the event that asked for it
	from    string                      // of a fork: the chat that is copied
	message *projections.PendingMessage // of a message
	try     func(context.Context) error
	pause   time.Duration // before the next try
	attemptState
}

// effectKind says what an effect waits for.
type effectKind int

const (
	messageKind effectKind = iota // waits for the earlier messages and commands of its chat, and for a free turn
	commandKind                   // a revert, a fork or an omission waits for the earlier commands of its chats
	abortKind                     // waits for no other effect
	replyKind                     // waits for no other effect
)

// attempt is a try that has ended.
type attempt struct {
	effect
	last        bool            // of those that were started together
	reconnected <-chan struct{} // closed when OpenCode was connected again since
	started     uint64          // the value of Model.Woken when it was started
	err         error
}

// attemptState holds the results of the tries of an open effect, and when it may be tried again.
type attemptState struct {
	times     int
	after     time.Time
	succeeded bool // the try succeeded; the event that ends the effect is still to come

	budgetsChecked bool      // the budgets were checked, which comes before a message is sent
	held           bool      // a budget holds the message back
	at             time.Time // when the budgets were checked
	woken          uint64    // the value of Model.Woken before the check
}

// checkValidity is how long a budget check that holds nothing back stays valid, even if the read model has changed
// since.
const checkValidity = time.Second

// start starts the tries of the effects that are due. Those of one chat run one after the other.
func (s *schedule) start(ctx context.Context) error {
	s.seq = max(s.seq, s.Model.Seq())
	if err := s.Model.Wait(ctx, s.seq); err != nil {
		return err
	}
	s.now, s.woken, s.reconnected = time.Now(), s.Model.Woken(), s.Reconnected()
	open, err := s.openEffects(ctx)
	if err != nil {
		return err
	}
	running, err := s.Model.CountRunningTurns(ctx, s.Engine)
	if err != nil {
		return err
	}
	if s.Model.Seq() < s.seq { // a rebuild began meanwhile; it wakes the outbox again
		return nil
	}
	reconnected, woken := s.reconnected, s.woken
	for chat, effects := range s.due(open, running) {
		s.busy[chat] = true
		go func() {
			for i, e := range effects {
				err := s.WaitConnected(ctx) // the try before may have taken long
				if err == nil {
					err = e.try(ctx)
				}
				select {
				case s.ended <- attempt{e, i == len(effects)-1, reconnected, woken, err}:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return nil
}

// openEffects lists the open effects in log order. It reads the commands last, so that the list has each command
// before a listed message.
func (s *schedule) openEffects(ctx context.Context) (open []effect, err error) {
	known := map[string]attemptState{}
	for _, list := range []func(context.Context) ([]effect, error){s.messages, s.decisions, s.questions, s.commands} {
		effects, err := list(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range effects {
			if _, twice := known[e.key]; !twice {
				e.attemptState = s.attempts[e.key]
				known[e.key] = e.attemptState
				open = append(open, e)
			}
		}
	}
	s.attempts = known // drops effects that are not open any more
	slices.SortStableFunc(open, func(a, b effect) int { return cmp.Compare(a.seq, b.seq) })
	takeTurns(open, s.now)
	return open, nil
}

// takeTurns orders the messages among effects in log order, so that accounts take turns, and the chats of an account
// do: first the one that began a turn least recently. Messages that cannot begin a turn now come last, so that they
// do not take the turn of another chat of their account. The messages of a chat keep their order. Apart from budgets
// and failed tries, the order follows from the log alone.
func takeTurns(open []effect, now time.Time) {
	var places []int // of messages in open
	type entry struct {
		effect
		round int // how many messages of its account come before
	}
	var next []entry
	var rest []effect
	seen := map[string]bool{} // chats
	for i, e := range open {
		if e.kind != messageKind {
			continue
		}
		places = append(places, i)
		if seen[e.chat] || !e.message.Free || e.held || now.Before(e.after) {
			rest = append(rest, e)
		} else {
			next = append(next, entry{effect: e})
		}
		seen[e.chat] = true
	}
	slices.SortStableFunc(next, func(a, b entry) int { return cmp.Compare(a.message.ChatStarted, b.message.ChatStarted) })
	perUser := map[string]int{}
	for i, m := range next {
		next[i].round = perUser[m.message.ChatUser]
		perUser[m.message.ChatUser]++
	}
	slices.SortStableFunc(next, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.message.UserStarted, b.message.UserStarted))
	})
	for i, place := range places {
		if i < len(next) {
			open[place] = next[i].effect
		} else {
			open[place] = rest[i-len(next)]
		}
	}
}

// due returns the effects that may be tried now, by chat. Replies come last.
func (s *schedule) due(open []effect, running map[string]int) map[string][]effect {
	due := map[string][]effect{}
	chats := effectsByChat(open)
	isLater := map[string]bool{} // chats with an earlier open message
	s.next = nil
	for _, e := range open {
		may := !s.busy[e.chat] && !e.succeeded && !s.now.Before(e.after)
		switch e.kind {
		case messageKind:
			may = may && !chats[e.chat].waits(e) && s.mayStart(&e, chats[e.chat], isLater[e.chat], running)
			if !isLater[e.chat] && s.isNext(e, chats[e.chat], running) {
				s.next = append(s.next, e.message.ChatUser)
			}
			isLater[e.chat] = true
		case commandKind:
			may = may && !chats[e.chat].waits(e) && !chats[e.from].waits(e)
		}
		if may {
			due[e.chat] = append(due[e.chat], e)
		}
	}
	for _, effects := range due {
		slices.SortStableFunc(effects, func(a, b effect) int {
			switch aLast, bLast := a.kind == replyKind, b.kind == replyKind; {
			case aLast == bLast:
				return 0
			case aLast:
				return 1
			}
			return -1
		})
	}
	return due
}

// chatEffects is what the open effects of a chat mean for its other effects.
type chatEffects struct {
	command  int64 // sequence of the first abort, revert, fork or omission, 0 for none
	aborting bool
	sending  string // id of the message under way, "" for none
}

func effectsByChat(open []effect) map[string]*chatEffects {
	chats := map[string]*chatEffects{}
	for _, e := range open {
		for _, id := range []string{e.chat, e.from} {
			c := chats[id]
			if c == nil {
				c = &chatEffects{}
				chats[id] = c
			}
			switch {
			case id == "":
			case e.kind == messageKind && e.message.EngineMessage != "":
				c.sending = e.message.ID
			case e.kind == abortKind || e.kind == commandKind:
				c.command = cmp.Or(c.command, e.seq)
				c.aborting = c.aborting || e.kind == abortKind
			}
		}
	}
	return chats
}

// waits reports whether an effect waits for an earlier command. A message that was moved up in its queue still waits
// for the commands that were there when it was submitted.
func (c *chatEffects) waits(e effect) bool {
	seq := e.seq
	if e.message != nil {
		seq = max(seq, e.message.First)
	}
	return c.command != 0 && c.command < seq
}

// mayStart reports whether a message may be tried. A new message needs a valid check of the budgets before it is sent.
// Without one, the try is that check. An abort is meant for the running turn, so a new message waits for it. A message
// that steers joins the running turn; one message of a chat is under way at a time.
func (s *schedule) mayStart(e *effect, c *chatEffects, isLater bool, running map[string]int) bool {
	m := e.message
	steers := m.Delivery == events.DeliverySteer && (c.sending == "" || c.sending == m.ID)
	if !m.Free && !steers {
		return false
	}
	if isNew := m.EngineMessage == ""; isNew {
		if c.aborting {
			return false
		}
		if !s.isChecked(*e) {
			e.try = func(ctx context.Context) error { return s.checkBudgets(ctx, *m) }
			return !e.budgetsChecked || e.woken != s.woken
		}
	}
	if m.Free {
		if isLater && !steers || !s.mayRun(m.ChatUser, running) {
			return false
		}
		s.sending[e.chat] = m.ChatUser
	}
	c.sending = m.ID
	return true
}

// isChecked reports whether a valid check of the budgets lets a message begin a turn.
func (s *schedule) isChecked(e effect) bool {
	return e.budgetsChecked && !e.held && (e.woken == s.woken || s.now.Sub(e.at) < checkValidity)
}

// isNext reports whether the first message of a chat waits for a check of the budgets alone. Messages behind it must
// not take its turn meanwhile, since otherwise the fastest check would decide which account is next.
func (s *schedule) isNext(e effect, c *chatEffects, running map[string]int) bool {
	m := e.message
	_, isSending := s.sending[e.chat]
	return m.Free && m.EngineMessage == "" && !e.held && !e.succeeded && !s.now.Before(e.after) && !c.aborting &&
		!c.waits(e) && !isSending && (s.busy[e.chat] || !s.isChecked(e)) && s.mayRun(m.ChatUser, running)
}

// mayRun reports whether a chat of an account may begin a turn. One account gets at most three quarters of MaxTurns,
// so that other accounts find a free turn.
func (s *schedule) mayRun(user string, running map[string]int) bool {
	if s.MaxTurns <= 0 {
		return true
	}
	begun := slices.Concat(slices.Collect(maps.Values(s.sending)), s.next)
	all, own := len(begun), running[user]
	for _, n := range running {
		all += n
	}
	for _, owner := range begun {
		if owner == user {
			own++
		}
	}
	share := max(1, s.MaxTurns-s.MaxTurns/4)
	return all < s.MaxTurns && (user == "" || own < share)
}

// wait blocks until something may be due.
func (s *schedule) wait(ctx context.Context) error {
	awake := make(chan error, 1)
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { awake <- s.Model.Awake(waiting, s.woken) }()
	tomorrow := s.now.Add(untilTomorrow(s.now))
	next := tomorrow
	for _, t := range s.attempts {
		if t.after.After(s.now) && t.after.Before(next) {
			next = t.after
		}
	}
	select {
	case a := <-s.ended:
		s.end(a)
	case <-awake:
	case <-s.reconnected: // a new OpenCode may accept effects that failed before, so do not wait
		for key, t := range s.attempts {
			t.after = time.Time{}
			s.attempts[key] = t
		}
	case <-time.After(max(0, time.Until(next))):
	}
	for more := true; more; { // several tries may have ended
		select {
		case a := <-s.ended:
			s.end(a)
		default:
			more = false
		}
	}
	if !time.Now().Before(tomorrow) { // daily budgets start from zero
		for key, t := range s.attempts {
			t.budgetsChecked = false
			s.attempts[key] = t
		}
	}
	return ctx.Err()
}

// end records the result of a try.
func (s *schedule) end(a attempt) {
	if a.last {
		delete(s.busy, a.chat)
	}
	if a.kind == messageKind {
		delete(s.sending, a.chat)
	}
	t := s.attempts[a.key]
	switch l := (budgetCheck{}); {
	case a.err == nil:
		t.succeeded = true
	case errors.Is(a.err, errChanged): // the queue is listed again
	case errors.As(a.err, &l) && l.err == nil:
		t.budgetsChecked, t.held, t.at, t.woken = true, l.held, time.Now(), a.started
	case errors.As(a.err, &l): // the message was not sent, so this does not count as a try
		s.Logger.Warn("check budgets", "chat", a.chat, "message", a.message.ID, "err", l.err)
		t.after = time.Now().Add(s.Pause)
	case a.kind == messageKind && isUnavailable(a.err): // nor does this
		t.after = time.Now().Add(a.pause)
	default:
		s.Logger.Warn("carry out effect in opencode", "effect", a.key, "chat", a.chat, "try", t.times+1, "err", a.err)
		t.times, t.after = t.times+1, time.Now().Add(a.pause)
		select {
		case <-a.reconnected: // while it was tried
			t.after = time.Time{}
		default:
		}
	}
	s.attempts[a.key] = t
}

// commands lists the open aborts, reverts, forks and omissions. A fork is an effect of the new chat, so other effects
// of the copied chat do not wait while OpenCode copies.
func (s *schedule) commands(ctx context.Context) (open []effect, err error) {
	all, err := s.Model.PendingEffects(ctx, s.Engine)
	for _, f := range all {
		e := effect{key: f.Kind + "/" + f.ID, kind: commandKind, chat: f.Chat, seq: f.Position, pause: s.Pause}
		switch f.Kind {
		case projections.EffectAbort:
			e.kind = abortKind
			e.try = func(ctx context.Context) error { return s.recordOutcome(ctx, f, snapshots.Restored{}, s.abort(ctx, f)) }
		case projections.EffectFork:
			e.chat, e.from = f.Into, f.Chat
			e.try = func(ctx context.Context) error { return s.recordOutcome(ctx, f, snapshots.Restored{}, s.fork(ctx, f)) }
		case projections.EffectOmit:
			e.try = func(ctx context.Context) error { return s.recordOutcome(ctx, f, snapshots.Restored{}, s.omit(ctx, f)) }
		default:
			n := s.attempts[e.key].times
			e.try = func(ctx context.Context) error { return s.tryRevert(ctx, f, n) }
		}
		open = append(open, e)
	}
	return open, err
}

// endEarlierEffects records the end of effects that an earlier version carried out. That version recorded no ends in
// the log, but its durable consumers hold the last sequence that it carried out.
func (o *Outbox) endEarlierEffects(ctx context.Context) error {
	open, err := o.Model.PendingEffects(ctx, o.Engine)
	if err != nil || len(open) == 0 {
		return err
	}
	until := map[string]uint64{}
	// names of those consumers
	for _, kind := range []string{projections.EffectAbort, projections.EffectRevert, projections.EffectFork} {
		if until[kind], err = o.Log.LastAcked(ctx, kind); err != nil {
			return fmt.Errorf("find out which effects were carried out: %w", err)
		}
	}
	for _, f := range open {
		if uint64(f.Position) <= until[f.Kind] {
			if err := o.record(ctx, f.Chat, events.EffectDone{Effect: f.ID}); err != nil {
				return err
			}
		}
	}
	return nil
}
