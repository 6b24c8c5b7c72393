// Package turn follows the events of a chat. It reports whether the person or the assistant must act, and how the last
// turn ended. It also decodes the fields of OpenCode's events that the terminal shows.
//
// It must not know how events are read or shown.
package turn

import (
	"cmp"
	"strings"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/projections"
	"pocketcoder/projections/turnstate"
)

// End is how a turn ended, as an exit status. 2 is wrong usage.
type End int

const (
	Completed  = 0
	Failed     = 1
	Denied     = 3
	Aborted    = 4
	Lost       = 5
	Pending    = 6
	Incomplete = 7
)

// Turn follows the chat's own session: whose turn it is, and how the last one ended.
type Turn struct {
	Root    string
	outbox  map[string]bool // messages on their way to OpenCode
	queue   map[string]bool // messages of persons that wait
	sent    map[string]string
	session turnstate.Turn

	resumes      string            // the newest prompt that resumes a turn
	Held         map[string]string // messages that wait for a budget, and its request, or after a loss, and ""
	unreferred   map[string]bool   // budget requests that the policy has not evaluated
	pendingStops map[string]bool   // aborts and reverts of the whole turn
	// budget requests that stopped the turn: it resumes when they are granted
	stoppedBy map[string]bool

	answer  string // the assistant message that began last
	last    turnstate.Step
	Failure string
	denied  bool
	ended   bool // by a denial without a reason, or a question that was dismissed
	refused bool // more than a budget allows was denied
}

// New returns a turn of the chat whose own session is root, which may not be known yet.
func New(root string) *Turn {
	return &Turn{
		Root: root, outbox: map[string]bool{}, queue: map[string]bool{}, sent: map[string]string{},
		Held: map[string]string{}, unreferred: map[string]bool{}, stoppedBy: map[string]bool{}, pendingStops: map[string]bool{},
	}
}

// Begin resets the end of the previous turn.
func (t *Turn) Begin() {
	t.session.Outcome, t.Failure, t.last = "", "", turnstate.Step{}
	t.denied, t.ended, t.refused = false, false, false
}

func (t *Turn) End() End {
	switch {
	case t.session.Outcome == turnstate.Lost:
		return Lost
	case t.refused:
		return Denied
	case len(t.Held) > 0 && !t.denied:
		return Pending
	}
	return statuses[t.Ending()]
}

// EndWaiting returns how a turn ended whose conversation is left while a request waits. After a denial that ends the
// turn no answer to the others is of use.
func (t *Turn) EndWaiting() End {
	if t.ended || t.refused {
		return Denied
	}
	return Pending
}

// statuses are the exit statuses of endings. A turn that has not begun is completed.
var statuses = map[turnstate.Ending]End{
	turnstate.EndCut: Incomplete, turnstate.EndEmpty: Incomplete, turnstate.EndFiltered: Incomplete,
	turnstate.EndLost: Lost, turnstate.EndStopped: Aborted, turnstate.EndDenied: Denied, turnstate.EndFailed: Failed,
}

// Ending returns how the last turn ended, by its last step.
func (t *Turn) Ending() turnstate.Ending {
	last := t.last
	last.IsDenied = t.denied
	return turnstate.EndingOf(t.session.Outcome, last)
}

// Whose returns projections.TurnUser or projections.TurnAssistant: the side that must act.
func (t *Turn) Whose() string {
	if len(t.unreferred) > 0 || len(t.outbox) > 0 || t.session.Runs(false) {
		return projections.TurnAssistant
	}
	return projections.TurnUser
}

// Apply applies an event of the chat. It reports whether the turn may have ended with it.
func (t *Turn) Apply(e events.Event) (mayEnd bool) {
	d, err := events.Decode(e)
	if err != nil {
		return false // shown by the renderer
	}
	if events.ReleasesQueue(e, d) {
		for message := range t.queue {
			if _, held := t.Held[message]; !held {
				t.outbox[message] = true
			}
		}
	}
	switch d := d.(type) {
	case events.SessionBound:
		t.Root = d.Session
	case events.MessageSubmitted:
		t.outbox[d.Message] = true
		if d.IsByPerson(e) {
			t.queue[d.Message] = true
		}
		if d.Resumes != "" {
			t.Begin()
			t.resumes = d.Message
			delete(t.outbox, resumeKey(d.Resumes))
		}
	case events.MessageWithdrawn:
		delete(t.queue, d.Message)
		delete(t.outbox, d.Message)
		delete(t.Held, d.Message)
		return true
	case events.MessageSteered:
		if by, held := t.Held[d.Message]; held && by == "" {
			delete(t.Held, d.Message)
			t.outbox[d.Message] = true
		}
	case events.MessageHeld:
		delete(t.outbox, d.Message)
		t.Held[d.Message] = d.Permission
		return true
	case events.MessageSending:
		delete(t.queue, d.Message)
		if delete(t.Held, d.Message); d.Message == t.resumes {
			t.Begin() // the end of the stopped turn may come after the prompt
		}
		t.sent[d.EngineMessage], t.session.Awaiting = d.Message, d.EngineMessage
	case events.MessageDelivered:
		delete(t.outbox, d.Message)
	case events.MessageFailed:
		delete(t.queue, d.Message)
		delete(t.outbox, d.Message)
		t.Failure, t.last = d.Error, turnstate.Step{}
		t.session.Undelivered(t.session.Awaiting)
		return true
	case events.PermissionRequested:
		if d.Type == events.KindBudget {
			t.unreferred[d.Permission] = true
		}
	case events.PermissionReferred:
		return t.applyBudgetRequest(d.Permission)
	case events.PermissionDecided:
		if d.Decision == events.Denied {
			t.Deny(d.Type, d.Reason)
		}
		if d.Decision == events.Authorized {
			t.Grant(d.Permission)
		} else {
			delete(t.outbox, resumeKey(d.Permission))
		}
		return t.applyBudgetRequest(d.Permission)
	case events.QuestionAnswered:
		t.denied = t.denied || d.Rejected // also of the tool ask_person, after which the turn may go on
	case events.PermissionExpired:
		delete(t.outbox, resumeKey(d.Permission))
		return t.applyBudgetRequest(d.Permission)
	case events.AbortRequested:
		if e.Actor == events.ActorPolicy {
			t.stoppedBy[e.Cause] = true
		}
		if d.HoldsQueue(e) {
			t.holdQueue()
		}
		if d.Session == "" {
			t.pendingStops[e.ID], t.last.IsStopped = true, true
		}
	case events.RevertRequested:
		t.pendingStops[e.ID] = true
	case events.EffectDone:
		if t.pendingStops[d.Effect] {
			t.session.Stop(t.outbox[t.sent[t.session.Awaiting]])
			return true
		}
	case events.TurnLost:
		if d.Session == t.Root {
			t.session.End(turnstate.Lost, t.outbox[t.sent[t.session.Awaiting]])
			t.session.Outcome = turnstate.Lost // also of messages that were not read here
			return true
		}
	case events.OpenCode:
		return t.openCode(d)
	}
	return false
}

// holdQueue applies a stop of the turn, after which the messages of persons wait. The turn is stopped at once if none
// of them had been sent.
func (t *Turn) holdQueue() {
	wasQueued := len(t.outbox) > 0 && !t.session.Runs(false)
	for message := range t.queue {
		delete(t.outbox, message)
	}
	if wasQueued && len(t.outbox) == 0 && t.session.Awaiting == "" {
		t.session.Outcome, t.last, t.Failure = turnstate.Aborted, turnstate.Step{}, ""
	}
}

// applyBudgetRequest notes that a budget request waits for a person, or was decided.
func (t *Turn) applyBudgetRequest(ask string) (mayEnd bool) {
	mayEnd = t.unreferred[ask]
	delete(t.unreferred, ask)
	return mayEnd
}

// Deny notes that a request of a type was denied. With a reason the turn goes on.
func (t *Turn) Deny(typ, reason string) {
	if typ == events.KindKeep { // the turn does not wait for it
		return
	}
	t.denied, t.ended = true, t.ended || reason == ""
	t.refused = t.refused || typ == events.KindBudget
}

// resumeKey stands in the outbox for the prompt that resumes a turn, until that has its own id.
func resumeKey(ask string) string { return "resume/" + ask }

// Grant notes that a request was approved, so that the messages held for it are released.
func (t *Turn) Grant(ask string) {
	if t.stoppedBy[ask] {
		delete(t.stoppedBy, ask)
		t.outbox[resumeKey(ask)] = true
	}
	for message, by := range t.Held {
		if by == ask {
			delete(t.Held, message)
			t.outbox[message] = true
		}
	}
}

func (t *Turn) openCode(d events.OpenCode) (mayEnd bool) {
	p := ReadPayload(d)
	switch d.Type {
	case events.PermissionReplied:
		t.denied = t.denied || p.Reply == "reject"
	case events.QuestionRejected:
		t.denied, t.ended = true, true
	}
	if p.SessionID != t.Root && p.SessionID != "" {
		return false
	}
	switch d.Type {
	case "session.status":
		t.session.Status = p.Status.Type
		return p.Status.Type == turnstate.Idle
	case "session.idle":
		return true
	case "session.error":
		t.session.Fail(p.Error)
		t.Failure = p.Error.String()
		return true
	case "message.updated":
		if p.Info.Role != "assistant" {
			delete(t.outbox, t.sent[p.Info.ID])
			t.session.Unanswered = max(t.session.Unanswered, p.Info.ID)
			return false
		}
		return t.assistant(d)
	case "message.part.updated":
		t.part(p.Part)
	}
	return false
}

// assistant applies an assistant message. A message that begins after a denial shows that the model continued.
func (t *Turn) assistant(d events.OpenCode) (mayEnd bool) {
	m, err := opencode.Read[opencode.MessageUpdated](d)
	if err != nil {
		return false
	}
	if m.Info.ID > t.answer {
		t.answer, t.denied, t.ended, t.last = m.Info.ID, false, false, turnstate.Step{}
	}
	if m.Info.ID == t.answer {
		t.last.Outcome, t.last.Finish, t.last.Agent = turnstate.Outcome(m.Info), m.Info.Finish, m.Info.Agent
		t.last.Error = m.Info.Error.Name()
	}
	t.session.Answer(m.Info.ID, m.Info)
	t.Failure = cmp.Or(m.Info.Error.String(), t.Failure)
	return turnstate.Outcome(m.Info) != ""
}

// part applies a part of the assistant message that began last.
func (t *Turn) part(p Part) {
	if p.MessageID != t.answer {
		return
	}
	switch p.Type {
	case "text":
		t.last.HasText = t.last.HasText || strings.TrimSpace(p.Text) != ""
	case "tool":
		t.last.HasCall = true
	case "step-finish":
		t.last.IsWhole = true
	}
}
