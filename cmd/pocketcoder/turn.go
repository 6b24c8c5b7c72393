package main

import (
	"encoding/json"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/projections"
)

// turnEnd is how a turn ended, as an exit status. 2 is wrong usage.
type turnEnd int

const (
	exitCompleted = 0
	exitFailed    = 1
	exitDenied    = 3
	exitAborted   = 4
	exitLost      = 5
	exitPending   = 6
)

// turn follows what the chat's own session does: whose turn it is, and how the last one ended.
type turn struct {
	root     string
	outbox   map[string]bool // messages on their way to OpenCode
	sent     map[string]string
	awaiting bool            // a message was sent that nothing has answered
	busy     bool            // by OpenCode's last word
	writing  map[string]bool // assistant messages without an end

	resumes string            // the newest prompt that resumes a turn
	held    map[string]string // messages that wait for a budget, and the ask that decides about it
	fresh   map[string]bool   // asks for more that the policy has not looked at
	stopped map[string]bool   // asks for more than a budget allows, with which the turn was stopped: it is resumed when they are granted

	answer  string // the assistant message that began last
	broken  bool   // it ended without a finish reason and without an error: OpenCode was stopped while the provider was retried
	failure string
	denied  bool
	aborted bool
	lost    bool
	refused bool // more than a budget allows was denied
}

func newTurn(root string) *turn {
	return &turn{
		root: root, outbox: map[string]bool{}, sent: map[string]string{}, writing: map[string]bool{},
		held: map[string]string{}, fresh: map[string]bool{}, stopped: map[string]bool{},
	}
}

// begin forgets how the turn before ended.
func (t *turn) begin() {
	t.failure, t.denied, t.aborted, t.lost, t.refused, t.broken = "", false, false, false, false, false
}

// exit is how the turn ended.
func (t *turn) exit() turnEnd {
	switch {
	case t.lost:
		return exitLost
	case t.refused:
		return exitDenied
	case len(t.held) > 0 && !t.denied:
		return exitPending
	case t.aborted:
		return exitAborted
	case t.failure != "":
		return exitFailed
	case t.denied:
		return exitDenied
	case t.broken:
		return exitLost
	}
	return exitCompleted
}

// whose is the person's turn or the assistant's.
func (t *turn) whose() string {
	if len(t.outbox) > 0 || t.awaiting || t.busy || len(t.writing) > 0 || len(t.fresh) > 0 {
		return projections.TurnAssistant
	}
	return projections.TurnUser
}

// apply takes an event of the chat, and says whether the turn may have ended with it.
func (t *turn) apply(e events.Event) (mayEnd bool) {
	d, err := events.Decode(e)
	if err != nil {
		return false // shown by the renderer
	}
	switch d := d.(type) {
	case events.SessionBound:
		t.root = d.Session
	case events.MessageSubmitted:
		t.outbox[d.Message] = true
		if d.Resumes != "" {
			t.begin()
			t.resumes = d.Message
			delete(t.outbox, resumeOf(d.Resumes))
		}
	case events.MessageHeld:
		delete(t.outbox, d.Message)
		t.held[d.Message] = d.Permission
		return true
	case events.MessageSending:
		if delete(t.held, d.Message); d.Message == t.resumes {
			t.begin() // the end of what was stopped may come after the prompt
		}
		t.sent[d.EngineMessage], t.awaiting = d.Message, true
	case events.MessageDelivered:
		delete(t.outbox, d.Message)
	case events.MessageFailed:
		delete(t.outbox, d.Message)
		t.failure, t.awaiting = d.Error, false
		return true
	case events.PermissionRequested:
		if d.Type == handlers.BudgetAsk {
			t.fresh[d.Permission] = true
		}
	case events.PermissionReferred:
		return t.settle(d.Permission)
	case events.PermissionDecided:
		if d.Decision == events.Denied {
			t.deny(d.Type)
		}
		if d.Decision == events.Authorized {
			t.granted(d.Permission)
		} else {
			delete(t.outbox, resumeOf(d.Permission))
		}
		return t.settle(d.Permission)
	case events.PermissionExpired:
		delete(t.outbox, resumeOf(d.Permission))
		return t.settle(d.Permission)
	case events.AbortRequested:
		if e.Actor == events.ActorPolicy {
			t.stopped[e.Cause] = true
		}
	case events.TurnLost:
		if d.Session == t.root {
			t.lost, t.awaiting, t.busy, t.writing = true, false, false, map[string]bool{}
			return true
		}
	case events.OpenCode:
		return t.openCode(d)
	}
	return false
}

// settle takes into account that an ask for more waits for a person, or for nobody any more.
func (t *turn) settle(ask string) (mayEnd bool) {
	mayEnd = t.fresh[ask]
	delete(t.fresh, ask)
	return mayEnd
}

// deny takes into account that a request of a type was denied.
func (t *turn) deny(typ string) {
	t.denied = true
	t.refused = t.refused || typ == handlers.BudgetAsk
}

// resumeOf stands in the outbox for the prompt that resumes a turn, until that has its own id.
func resumeOf(ask string) string { return "resume/" + ask }

// granted takes into account what follows when an ask is approved, and has not happened yet.
func (t *turn) granted(ask string) {
	if t.stopped[ask] {
		delete(t.stopped, ask)
		t.outbox[resumeOf(ask)] = true
	}
	for message, by := range t.held {
		if by == ask {
			delete(t.held, message)
			t.outbox[message] = true
		}
	}
}

func (t *turn) openCode(d events.OpenCode) (mayEnd bool) {
	p := readOpenCode(d)
	if d.Type == events.PermissionReplied {
		t.denied = t.denied || p.Reply == "reject"
	}
	if p.SessionID != t.root && p.SessionID != "" {
		return false
	}
	switch d.Type {
	case "session.status":
		t.busy = p.Status.Type != "idle"
		return !t.busy
	case "session.idle":
		return true
	case "session.error":
		t.awaiting = false
		t.failed(p.Error)
		return true
	case "message.updated":
		if p.Info.Role != "assistant" {
			delete(t.outbox, t.sent[p.Info.ID])
			return false
		}
		return t.assistant(d)
	}
	return false
}

// assistant takes an assistant message. One that begins after a denial says that the model went on.
func (t *turn) assistant(d events.OpenCode) (mayEnd bool) {
	var m struct {
		Info struct {
			ID     string
			Time   struct{ Completed int64 }
			Finish string
			Error  *openCodeError
		}
	}
	if json.Unmarshal(d.Properties, &m) != nil {
		return false
	}
	t.awaiting = false
	if m.Info.ID > t.answer {
		t.answer, t.denied = m.Info.ID, false
	}
	if m.Info.ID == t.answer {
		t.broken = m.Info.Time.Completed != 0 && m.Info.Finish == "" && m.Info.Error == nil
	}
	if m.Info.Time.Completed == 0 && m.Info.Error == nil {
		t.writing[m.Info.ID] = true
		return false
	}
	delete(t.writing, m.Info.ID)
	if m.Info.Error != nil {
		t.failed(*m.Info.Error)
	}
	return true
}

func (t *turn) failed(e openCodeError) {
	if e.Name == abortedError {
		t.aborted = true
		return
	}
	t.failure = e.String()
}
