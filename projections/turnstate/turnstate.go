// Package turnstate defines when the turn of a session is queued, running or over, and how it ended. The read model
// turns stores both, and everything else reads them there.
//
// A turn is over when OpenCode says idle, every assistant message has ended and no message that OpenCode has accepted
// waits for an answer. Idle alone comes early when a turn is aborted or fails. The event
// turn.lost ends a turn that OpenCode does not run any more.
package turnstate

import (
	"cmp"
	"slices"
	"strings"

	"pocketcoder/events/opencode"
)

// The states of a turn. A session without a turn has none.
const (
	Queued    = "queued"  // a message is on its way to OpenCode
	Running   = "running" // in OpenCode
	Waiting   = "waiting" // in OpenCode, until a person decides or answers
	Completed = "completed"
	Failed    = "failed"
	Aborted   = "aborted"
	Lost      = "lost" // OpenCode does not run it any more and has not ended it
)

// Ended reports whether the last turn has ended, or none has begun.
func Ended(state string) bool { return state != Queued && state != Running && state != Waiting }

// OpenCode's status of a session that is idle, and of one that waits to try the model provider again.
const (
	Idle     = "idle"
	Retrying = "retry"
)

// Turn holds what the events of a session say about its last turn.
type Turn struct {
	Status     string `db:"status"`     // of the session in OpenCode: idle, busy, retry; empty if there is no session
	Processing IDs    `db:"processing"` // assistant messages that have not ended
	Awaiting   string `db:"awaiting"`   // engine id of the message we sent that nothing has answered
	Unanswered string `db:"unanswered"` // engine id of the newest user message without an answer, of any sender
	Waiting    IDs    `db:"waiting"`    // permissions and questions, of subagents too, that wait for a person
	Outcome    string `db:"outcome"`    // so far: completed, failed, aborted, lost
}

// Runs reports whether OpenCode works in the session. sending says that it has not accepted the awaited message yet.
func (t Turn) Runs(sending bool) bool {
	return t.Status != Idle && t.Status != "" || t.Processing != "" || t.Awaiting != "" && !sending
}

// State returns the state of the turn, as far as OpenCode has ended it. runs says that OpenCode works in the session.
func (t Turn) State(runs bool) string {
	switch {
	case runs && t.Waiting != "":
		return Waiting
	case runs:
		return Running
	}
	return t.Outcome
}

// Outcome returns how an assistant message ended, or "" while it is being written.
func Outcome(m opencode.Message) string {
	switch {
	case m.Error.Aborted():
		return Aborted
	case m.Error.Exists():
		return Failed
	case m.Time.Completed != 0:
		return Completed
	}
	return ""
}

// Answer records an assistant message under an id. It answers its parent and every user message before it: of several
// queued ones OpenCode answers the last.
func (t *Turn) Answer(id string, m opencode.Message) {
	outcome := Outcome(m)
	t.Processing = t.Processing.With(id, outcome == "")
	t.Outcome = cmp.Or(outcome, t.Outcome)
	if m.ParentID >= t.Awaiting {
		t.Awaiting = ""
	}
	if m.ParentID >= t.Unanswered {
		t.Unanswered = ""
	}
}

// Fail records an error of the session. It returns the engine id of the user message that waits for an answer: with an
// assistant message there, that one carries the error itself.
func (t *Turn) Fail(e opencode.Error) (unanswered string) {
	unanswered = cmp.Or(t.Awaiting, t.Unanswered)
	t.Awaiting, t.Unanswered = "", ""
	if unanswered != "" || t.Processing != "" {
		t.Outcome = cmp.Or(Outcome(opencode.Message{Error: e}), Failed)
	}
	return unanswered
}

// Stop records that OpenCode has stopped what it was doing. A message that it had accepted by then is not answered.
func (t *Turn) Stop(sending bool) {
	if t.Awaiting != "" && !sending {
		t.Awaiting, t.Unanswered, t.Outcome = "", "", Aborted
	}
}

// Undelivered records that a message did not reach OpenCode.
func (t *Turn) Undelivered(engineMessage string) {
	t.Outcome = Failed
	if t.Awaiting == engineMessage {
		t.Awaiting = ""
	}
}

// End ends the turn if OpenCode does not end it any more. A message that is still being sent is kept, because it is
// sent again. A turn can be lost between two answers, when no message of it is open.
func (t *Turn) End(outcome string, sending bool) {
	if outcome == Lost || t.Processing != "" || t.Awaiting != "" && !sending {
		t.Outcome = outcome
	}
	if !sending {
		t.Awaiting = ""
	}
	t.Status, t.Processing, t.Unanswered = Idle, "", ""
}

// IDs is a sorted list of ids with a space between them.
type IDs string

func (l IDs) All() []string { return strings.Fields(string(l)) }

// With returns the list with an id, or without it.
func (l IDs) With(id string, on bool) IDs {
	ids := slices.DeleteFunc(l.All(), func(other string) bool { return other == id })
	if on {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return IDs(strings.Join(ids, " "))
}

// Prompt is what the turn of one message depends on, when later messages may begin further turns.
type Prompt struct {
	IsWithdrawn, IsWaiting, HasFailed bool // the message: before it is sent, on its way, not sent

	IsDeleted bool   // the chat
	Session   string // state of the chat's own session
}

// State returns the state of the message's turn after an event. now is the state before the event. A turn that is over
// stays over.
func (p Prompt) State(now string) string {
	switch {
	case Ended(now):
		return now
	case p.IsDeleted, p.IsWithdrawn:
		return Aborted
	case p.IsWaiting && (now == Queued || Ended(p.Session)):
		return Queued
	case !Ended(p.Session):
		return p.Session
	case p.HasFailed:
		return Failed
	case now == Queued:
		return cmp.Or(p.Session, now)
	}
	return cmp.Or(p.Session, Completed)
}
