// Package handlers turns commands into events, and reacts to events with commands of its own: the gate is here.
//
// A command is a wish and may be refused. Its handler folds what it needs to know of the chat from the log, decides, and
// appends with the expected last sequence; when somebody else was first it reads and decides again. First writer wins.
//
// Promises: a decision is made from the log alone, never from a read model, so neither a rebuild nor a lag changes one.
// A command with the id of one that was carried out changes nothing and gives its sequence. A command that is refused
// changes nothing and says why in words for a person (Refused). No process is started whose exact command was not
// authorized for its session and call, and none is started twice.
//
// It must not know HTTP, SQLite, or how OpenCode is spoken to.
package handlers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"pocketcoder/events"
)

// Code says why a command was refused, for a caller that answers with a status.
type Code string

// The codes of a refusal.
const (
	Invalid  Code = "invalid"   // the command makes no sense
	NotFound Code = "not_found" // what it is about does not exist
	Conflict Code = "conflict"  // it came too late, or contradicts what is decided
)

// Refused is the error of a command that was refused: Text is for the person who gave it.
type Refused struct {
	Code Code
	Text string
}

func (r Refused) Error() string { return r.Text }

func refuse(code Code, format string, args ...any) error {
	return Refused{code, fmt.Sprintf(format, args...)}
}

// Handlers carries out commands. The zero value but for Log is ready.
type Handlers struct {
	Log *events.Log

	permissions folds // of chats whose asks are decided
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

// folded is a state and how far its filters are folded into it. The lock makes decisions on it take turns: two of this
// process never conflict with each other, only with those of others.
type folded struct {
	mu      sync.Mutex
	state   state
	queries []query
}

// query is one subject filter and the last sequence folded under it.
type query struct {
	filter string
	last   uint64
}

func fold(s state, filters []string) *folded {
	f := &folded{state: s}
	for _, filter := range filters {
		f.queries = append(f.queries, query{filter: filter})
	}
	return f
}

// advance brings the state up to date with every filter.
func (f *folded) advance(ctx context.Context, log *events.Log) error {
	for i, q := range f.queries {
		last, err := log.Fold(ctx, q.filter, q.last, func(e events.Event) error { f.state.apply(e); return nil })
		if err != nil {
			return err
		}
		f.queries[i].last = last
	}
	return nil
}

// folds keeps the states of chats, so that a decision costs what is new since the last one, not the history. The zero
// value is empty.
type folds struct {
	mu sync.Mutex
	by map[string]*folded
}

// maxFolds is how many chats are kept; beyond, all are folded anew.
const maxFolds = 256

func (k *folds) get(chat string, begin func() *folded) *folded {
	k.mu.Lock()
	defer k.mu.Unlock()
	f, ok := k.by[chat]
	if !ok {
		if k.by == nil || len(k.by) >= maxFolds {
			k.by = map[string]*folded{}
		}
		f = begin()
		k.by[chat] = f
	}
	return f
}

// handle is the loop of every command on a chat: fold the filters into s, decide, append one event expecting the first
// filter unchanged, or begin again. A decide that returns a nil event found the command carried out already, at seq.
func (h *Handlers) handle(ctx context.Context, chat string, c Command, s state, filters []string,
	decide func() (d events.Data, seq uint64, err error)) (uint64, error) {
	if _, err := events.ParseID(chat); err != nil {
		return 0, refuse(Invalid, "chat: %v", err)
	}
	return h.handleOn(ctx, chat, c, fold(s, filters), decide)
}

// handleOn is handle on a state that is kept between commands.
func (h *Handlers) handleOn(ctx context.Context, chat string, c Command, f *folded,
	decide func() (d events.Data, seq uint64, err error)) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range tries {
		if err := f.advance(ctx, h.Log); err != nil {
			return 0, err
		}
		d, seq, err := decide()
		if err != nil || d == nil {
			return seq, err
		}
		e, err := events.New(chat, c.Actor, d)
		if err != nil {
			return 0, err
		}
		seq, err = h.Log.Append(ctx, e.CausedBy(c.ID), events.Expect{Filter: f.queries[0].filter, Last: f.queries[0].last})
		if !errors.Is(err, events.ErrConflict) {
			return seq, err
		}
	}
	return 0, refuse(Conflict, "the chat is too busy: others were first %d times", tries)
}
