package outbox

import (
	"cmp"
	"context"
	"slices"
	"time"

	"pocketcoder/bridge/outbox"
	"pocketcoder/events"
	"pocketcoder/projections"
)

// effect is an open effect. Its target is its chat.
type effect = outbox.Effect[work]

// work is what an effect does in OpenCode.
type work struct {
	kind    effectKind
	seq     int64                       // of the event that asked for it
	from    string                      // of a fork: the chat that is copied
	message *projections.PendingMessage // of a message
	try     func(ctx context.Context, tried int) error
}

// effectKind says what an effect waits for.
type effectKind int

const (
	messageKind effectKind = iota // waits for the earlier messages and commands of its chat, and for a free turn
	commandKind                   // a revert, a fork or an omission waits for the earlier commands of its chats
	abortKind                     // waits only for the effect of its chat that is being tried
	replyKind                     // the same, unless that effect is a message
)

// planner is the state of plan.
type planner struct {
	turns    map[string]int // running turns, by account
	maxTurns int            // 0 is no limit
	now      time.Time
	chats    map[string]*chatEffects
	busy     map[string]bool   // chats with an effect under way that is no message
	sending  map[string]bool   // chats with a message under way
	starting map[string]string // owners of the chats with a message under way that begins a turn, by chat
}

// plan returns the open effects that are tried now: at most one of each chat, and a reply beside a message, because the
// check of the budgets before the message can take long. Replies come after the others of a chat. turns has the number
// of running turns of each account; all accounts together may have maxTurns. The plan depends on these arguments alone.
func plan(open, running []effect, turns map[string]int, maxTurns int, now time.Time) (due []effect) {
	takeTurns(open, now)
	p := &planner{turns: turns, maxTurns: maxTurns, now: now, chats: effectsByChat(open), busy: map[string]bool{},
		sending: map[string]bool{}, starting: map[string]string{}}
	for _, e := range running {
		p.start(e)
	}
	isLater := map[string]bool{} // chats with an earlier open message
	for _, replies := range []bool{false, true} {
		for _, e := range open {
			if (e.Of.kind == replyKind) != replies {
				continue
			}
			if p.mayTry(e, isLater[e.Target]) {
				due = append(due, e)
				p.start(e)
			}
			if e.Of.kind == messageKind {
				isLater[e.Target] = true
			}
		}
	}
	return due
}

func (p *planner) start(e effect) {
	if e.Of.kind != messageKind {
		p.busy[e.Target] = true
		return
	}
	if p.sending[e.Target] = true; e.Of.message.Free {
		p.starting[e.Target] = e.Of.message.ChatUser
	}
}

// mayTry reports whether an effect may be tried now. isLater is true for a message behind another one of its chat.
func (p *planner) mayTry(e effect, isLater bool) bool {
	if p.busy[e.Target] || p.sending[e.Target] && e.Of.kind != replyKind || e.Succeeded || p.now.Before(e.After) {
		return false
	}
	switch e.Of.kind {
	case messageKind:
		return !p.chats[e.Target].waits(e) && p.mayStart(e, isLater)
	case commandKind:
		return !p.chats[e.Target].waits(e) && !p.chats[e.Of.from].waits(e)
	}
	return true
}

// takeTurns orders the messages among effects in log order. Accounts take turns, and so do the chats of an account: the
// one that began a turn least recently comes first. Messages that cannot begin a turn now come last, so that they
// do not take the turn of another chat of their account. The messages of a chat keep their order. Apart from
// tries that failed or that a budget held back, the order follows from the log alone.
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
		if e.Of.kind != messageKind {
			continue
		}
		places = append(places, i)
		if seen[e.Target] || !e.Of.message.Free || e.Deferred || now.Before(e.After) {
			rest = append(rest, e)
		} else {
			next = append(next, entry{effect: e})
		}
		seen[e.Target] = true
	}
	slices.SortStableFunc(next, func(a, b entry) int {
		return cmp.Compare(a.Of.message.ChatStarted, b.Of.message.ChatStarted)
	})
	perUser := map[string]int{}
	for i, m := range next {
		next[i].round = perUser[m.Of.message.ChatUser]
		perUser[m.Of.message.ChatUser]++
	}
	slices.SortStableFunc(next, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.Of.message.UserStarted, b.Of.message.UserStarted))
	})
	for i, place := range places {
		if i < len(next) {
			open[place] = next[i].effect
		} else {
			open[place] = rest[i-len(next)]
		}
	}
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
		for _, id := range []string{e.Target, e.Of.from} {
			c := chats[id]
			if c == nil {
				c = &chatEffects{}
				chats[id] = c
			}
			switch {
			case id == "":
			case e.Of.kind == messageKind && e.Of.message.EngineMessage != "":
				c.sending = e.Of.message.ID
			case e.Of.kind == abortKind || e.Of.kind == commandKind:
				c.command = cmp.Or(c.command, e.Of.seq)
				c.aborting = c.aborting || e.Of.kind == abortKind
			}
		}
	}
	return chats
}

// waits reports whether an effect waits for an earlier command. A message that was moved up in its queue still waits
// for the commands that were there when it was submitted.
func (c *chatEffects) waits(e effect) bool {
	seq := e.Of.seq
	if e.Of.message != nil {
		seq = max(seq, e.Of.message.First)
	}
	return c.command != 0 && c.command < seq
}

// mayStart reports whether a message may be tried. An abort is meant for the running turn, so a new message waits for
// it. A message that steers joins the running turn; one message of a chat is under way at a time.
func (p *planner) mayStart(e effect, isLater bool) bool {
	m, c := e.Of.message, p.chats[e.Target]
	steers := m.Delivery == events.DeliverySteer && (c.sending == "" || c.sending == m.ID)
	if isNew := m.EngineMessage == ""; !m.Free && !steers || isNew && c.aborting {
		return false
	}
	if m.Free && (isLater && !steers || !p.mayRun(m.ChatUser)) {
		return false
	}
	c.sending = m.ID
	return true
}

// mayRun reports whether a chat of an account may begin a turn. One account gets at most three quarters of maxTurns,
// so that other accounts find a free turn.
func (p *planner) mayRun(user string) bool {
	if p.maxTurns <= 0 {
		return true
	}
	all, own := len(p.starting), p.turns[user]
	for _, n := range p.turns {
		all += n
	}
	for _, owner := range p.starting {
		if owner == user {
			own++
		}
	}
	share := max(1, p.maxTurns-p.maxTurns/4)
	return all < p.maxTurns && (user == "" || own < share)
}
