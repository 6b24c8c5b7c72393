// Package handlers turns commands into events, and reacts to events with commands of its own: the gate is here.
//
// A command is a wish and may be refused. Its handler folds what it needs to know of the chat from the log, decides, and
// appends with the expected last sequence; when somebody else was first it reads and decides again. First writer wins.
//
// Promises: a decision is made from the log alone, never from a read model, so neither a rebuild nor a lag changes one; what
// the gate is told of a tool call besides (Call) is recorded with what it decides, and unknown is as good as forbidden.
// A command with the id of one that was carried out changes nothing and gives its sequence. A command that is refused
// changes nothing and says why in words for a person (Refused). Commands of one transaction are all carried out, or
// none is. No process is started whose exact command was not authorized for its session, its call and its directory, or put
// in its place by who authorized it; none after that has expired or its turn was aborted; and none is started twice. Only a
// person's own shell needs nobody's permission: it is theirs, and recorded so.
//
// It must not know HTTP, SQLite, or how OpenCode is spoken to.
package handlers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"pocketcoder/events"
	"pocketcoder/events/log"
)

// Code says why a command was refused, for a caller that answers with a status.
type Code string

// The codes of a refusal.
const (
	Invalid  Code = "invalid"   // the command makes no sense
	NotFound Code = "not_found" // what it is about does not exist
	Conflict Code = "conflict"  // it came too late, or contradicts what is decided

	Unavailable Code = "unavailable" // over NATS: the log does not store commands at present (log.Unavailable)
)

// Refused is the error of a command that was refused. Text is for the person who gave it and says all. Field names what is
// at fault, as the record that the command is about has it (id is the record's own); empty when no one field is.
type Refused struct {
	Code  Code
	Text  string
	Field string `json:"field,omitempty"`
}

func (r Refused) Error() string { return r.Text }

func refuse(code Code, format string, args ...any) error {
	return refuseField(code, "", format, args...)
}

func refuseField(code Code, field, format string, args ...any) error {
	return Refused{Code: code, Text: fmt.Sprintf(format, args...), Field: field}
}

// Handlers carries out commands. The zero value but for Log is ready.
type Handlers struct {
	Log        *log.Log
	Configured func() string // returns the model of chats without a selection; nil when there is no OpenCode

	messages    folds // of chats that are written to
	permissions folds // of chats whose asks are decided
	collections folds // of config records
	rules       folds // the rules people keep: one
	budgets     folds // asks for more than a budget allows: one
	networks    folds // of chats whose commands have a network
}

// Command is what every command carries. ID is made by whoever gives it, so that giving it twice is giving it once;
// empty for a command that is never repeated.
type Command struct {
	ID    string `json:"id,omitempty"`
	Actor string `json:"-"`
}

// tries is how often a command is decided again because somebody else was first.
const tries = 5

// state is what a decision needs to know, folded from a chat's events: facts only, it cannot refuse one.
type state interface{ apply(events.Event) }

// folded is a state and how far its filters are folded into it. Those in front are guarded: what is decided is appended
// only if they are unchanged. The lock makes decisions on it take turns: two of this process never conflict with each
// other, only with those of others.
type folded struct {
	mu      sync.Mutex
	state   state
	queries []query
	guarded int
}

// query is one subject filter and the last sequence folded under it.
type query struct {
	filter string
	last   uint64
}

func fold(s state, filters []string) *folded {
	f := &folded{state: s, guarded: 1}
	for _, filter := range filters {
		f.queries = append(f.queries, query{filter: filter})
	}
	return f
}

// advance brings the state up to date with every filter, and with what a transaction has decided so far.
func (f *folded) advance(ctx context.Context, log *log.Log) error {
	for i, q := range f.queries {
		last, err := log.Fold(ctx, q.filter, q.last, func(e events.Event) error { f.state.apply(e); return nil })
		if err != nil {
			return err
		}
		f.queries[i].last = last
	}
	if t := transactionOf(ctx); t != nil {
		t.applyTo(f)
	}
	return nil
}

// writes gives each event its cause and, as far as they go, one of the guarded filters.
func (f *folded) writes(all []events.Event, cause string) []log.Write {
	writes := make([]log.Write, len(all))
	for i, e := range all {
		writes[i].Event = e.CausedBy(cause)
		if i < f.guarded {
			writes[i].Expect = log.Expect{Filter: f.queries[i].filter, Last: f.queries[i].last}
		}
	}
	return writes
}

// folds keeps states by the id of what they are about, so that a decision costs what is new since the last one, not the
// history. The zero value is empty.
type folds struct {
	mu sync.Mutex
	by map[string]*folded
}

// maxFolds is how many states are kept; beyond, all are folded anew.
const maxFolds = 256

// get gives the kept state. A transaction gets one of its own, because what it decides may never happen.
func (k *folds) get(ctx context.Context, id string, begin func() *folded) *folded {
	if transactionOf(ctx) != nil {
		return begin()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	f, ok := k.by[id]
	if !ok {
		if k.by == nil || len(k.by) >= maxFolds {
			k.by = map[string]*folded{}
		}
		f = begin()
		k.by[id] = f
	}
	return f
}

// handle carries out a command on a chat that comes to one event, decided on what the filters give s; the first one is
// guarded. A decide that returns a nil event found the command carried out already, at seq.
func (h *Handlers) handle(ctx context.Context, chat string, c Command, s state, filters []string,
	decide func() (d events.Data, seq uint64, err error)) (uint64, error) {
	if _, err := events.ParseID(chat); err != nil {
		return 0, refuseField(Invalid, "chat", "chat: %v", err)
	}
	return h.handleOn(ctx, chat, c, fold(s, filters), decide)
}

// handleOn is handle on a state that is kept between commands.
func (h *Handlers) handleOn(ctx context.Context, chat string, c Command, f *folded,
	decide func() (d events.Data, seq uint64, err error)) (uint64, error) {
	return h.carryOut(ctx, c, f, func() ([]events.Event, uint64, error) {
		d, seq, err := decide()
		if err != nil || d == nil {
			return nil, seq, err
		}
		e, err := events.New(chat, c.Actor, d)
		return []events.Event{e}, 0, err
	})
}

// carryOut is the loop of every command: fold, decide, append what was decided, whole, expecting the guarded filters
// unchanged, or begin again. A decide that returns no event found the command carried out already, at seq. Inside a
// transaction nothing is appended yet, and the sequence of what was decided is 0.
func (h *Handlers) carryOut(ctx context.Context, c Command, f *folded,
	decide func() (all []events.Event, seq uint64, err error)) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range tries {
		if err := f.advance(ctx, h.Log); err != nil {
			return 0, err
		}
		all, seq, err := decide()
		if err != nil {
			return 0, err
		}
		writes := f.writes(all, c.ID)
		if t := transactionOf(ctx); t != nil {
			return seq, t.add(writes, seq)
		}
		if len(writes) == 0 {
			return seq, nil
		}
		seq, err = h.Log.Commit(ctx, writes)
		if !errors.Is(err, log.ErrConflict) {
			return seq, err
		}
	}
	return 0, refuse(Conflict, tooBusy, tries)
}

const tooBusy = "too much happens at once: others were first %d times"
