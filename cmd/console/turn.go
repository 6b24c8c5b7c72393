package console

import (
	"context"
	"fmt"
	"slices"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/handlers"
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

// statuses are the exit statuses of endings. A turn that has not begun is completed.
var statuses = map[turnstate.Ending]End{
	turnstate.EndCut: Incomplete, turnstate.EndEmpty: Incomplete, turnstate.EndFiltered: Incomplete,
	turnstate.EndLost: Lost, turnstate.EndStopped: Aborted, turnstate.EndDenied: Denied, turnstate.EndFailed: Failed,
}

// turn is what the read model says about the turn of the chat, and what the events shown say about requests.
type turn struct {
	Session  string           `json:"ai_engine_session_id"` // the chat's own
	Side     string           `json:"turn"`
	Position uint64           `json:"turn_position"`
	Ending   turnstate.Ending `json:"ending"`
	held     End              // one of heldEnds, by the messages that are held while no turn runs

	denied  bool   // a request was denied without a reason in the current step, or a question was dismissed
	refused bool   // more than a budget allows was denied
	step    string // OpenCode's id of the newest message of the assistant
	// budget requests that stopped the turn. True: the request was approved, so the turn will be resumed
	stoppedBy map[string]bool
}

// heldEnds are the ends that held messages cause: no message is held, a stop holds one, a request holds one, or that
// request was denied. The last one that applies counts.
var heldEnds = []End{Completed, Aborted, Pending, Denied}

// end returns how the last turn ended.
func (t *turn) end() End {
	ended := statuses[t.Ending]
	switch {
	case t.refused:
		return Denied
	case t.held == Aborted && ended == Completed, t.held == Pending && ended != Denied, t.held == Denied:
		return t.held
	}
	return ended
}

// endWaiting returns the end of a conversation that is left while a request waits. After a denial that has ended the
// turn, an answer to the request would change nothing.
func (t *turn) endWaiting() End {
	if t.denied || t.refused {
		return Denied
	}
	return Pending
}

// deny notes that a request of a type was denied. With a reason the turn goes on.
func (t *turn) deny(typ, reason string) {
	if typ == events.KindKeep { // the turn does not wait for it
		return
	}
	t.denied, t.refused = t.denied || reason == "", t.refused || typ == events.KindBudget
}

// approve notes that a request was approved.
func (t *turn) approve(request string) {
	if _, stopped := t.stoppedBy[request]; stopped {
		t.stoppedBy[request] = true
	}
}

// isResumed reports whether a turn is about to be resumed.
func (t *turn) isResumed() bool {
	for _, approved := range t.stoppedBy {
		if approved {
			return true
		}
	}
	return false
}

// apply notes what an event says about requests that end the turn or hold it up. It reports whether the turn may have
// ended with the event.
func (t *turn) apply(e events.Event, d any) (mayEnd bool) {
	switch d := d.(type) {
	case events.MessageSubmitted:
		if d.Resumes != "" {
			t.denied, t.refused = false, false
			delete(t.stoppedBy, d.Resumes)
		}
	case events.MessageSending:
		t.denied, t.refused = false, false
	case events.PermissionDecided:
		if d.Decision == events.Denied {
			t.deny(d.Type, d.Reason)
			delete(t.stoppedBy, d.Permission)
		} else {
			t.approve(d.Permission)
		}
		return d.Type == events.KindBudget
	case events.PermissionExpired:
		delete(t.stoppedBy, d.Permission)
	case events.AbortRequested:
		if e.Actor == events.ActorPolicy {
			t.stoppedBy[e.Cause] = false
		}
		return true
	case events.MessageWithdrawn, events.MessageDelivered, events.MessageFailed, events.MessageHeld, events.EffectDone,
		events.TurnLost:
		return true
	case events.OpenCode:
		return t.openCode(d)
	}
	return false
}

func (t *turn) openCode(d events.OpenCode) (mayEnd bool) {
	switch d.Type {
	case events.QuestionRejected:
		t.denied = true
	case "session.status", "session.idle", "session.error", "session.deleted", "message.removed":
		return true
	case "message.updated":
		p := render.ReadPayload(d)
		if p.Info.Role == "assistant" && p.SessionID == t.Session && p.Info.ID > t.step { // the model continued
			t.step, t.denied = p.Info.ID, false
		}
		return true
	}
	return false
}

// check asks the read model whose turn it is. The read model may be ahead of the events shown here: a turn whose end is
// not shown yet is still running.
func (c *conversation) check(ctx context.Context) error {
	row, err := client.View[turn](ctx, c.System, "chats", c.Chat)
	if err != nil {
		return err
	}
	c.turn.Session, c.turn.Side, c.turn.Position, c.turn.Ending = row.Session, row.Side, row.Position, row.Ending
	was := c.working
	if c.working, err = c.isAssistants(ctx); err != nil || c.working || !was {
		return err
	}
	c.stopping = false
	c.show.EndLine()
	if e := c.turn.Ending; e.CanContinue() && len(c.pending) == 0 && !c.Once {
		c.show.Note("", render.Yellow, `%s Write "continue" to go on.`, e.Sentence())
	}
	return nil
}

// isAssistants reports whether it is the assistant's turn, according to the events shown, or is about to be.
func (c *conversation) isAssistants(ctx context.Context) (bool, error) {
	if c.turn.Side == projections.TurnAssistant || c.turn.Position > c.shown || c.willGoOn() {
		return true, nil
	}
	return c.readHeld(ctx)
}

// willGoOn reports whether the turn is about to be resumed, or the policy has to evaluate a request for more budget.
func (c *conversation) willGoOn() bool {
	return c.turn.isResumed() || slices.ContainsFunc(c.show.Pending(), func(a *render.Request) bool {
		return !a.Referred && a.Content.Permission == events.KindBudget
	})
}

// readHeld reads which messages are held. It reports whether one of them will be sent, because the request for more
// budget that holds it was approved.
func (c *conversation) readHeld(ctx context.Context) (isReleased bool, err error) {
	all, err := client.List[projections.Message](ctx, c.System, "messages", client.Select{
		Filter: fmt.Sprintf(`chat = %q && user_message_status = "pending" && held != ""`, c.Chat)})
	if err != nil {
		return false, err
	}
	c.turn.held = Completed
	for _, m := range all {
		end := End(Pending)
		switch {
		case m.IsHeldByStop():
			end = Aborted
		case m.IsHeldByLoss() && c.turn.Ending == turnstate.EndLost:
			end = Completed // it waits because of the loss that ended the turn
		case m.HeldBy != "":
			p, err := c.FindPermission(ctx, m.HeldBy)
			if err != nil && handlers.CodeOf(err) != handlers.NotFound { // it may be in a chat of another account
				return false, err
			}
			if isReleased = isReleased || p.Status == events.Authorized; p.Status == events.Denied {
				end = Denied
			}
		}
		if slices.Index(heldEnds, end) > slices.Index(heldEnds, c.turn.held) {
			c.turn.held = end
		}
	}
	return isReleased, nil
}

// failure returns the error of the turn that failed.
func (c *conversation) failure(ctx context.Context) (string, error) {
	all, err := client.List[projections.Message](ctx, c.System, "messages", client.Select{Sort: "-position", Limit: 1,
		Filter: fmt.Sprintf(`chat = %q && (session = %q || session = "") && error_domain != ""`, c.Chat, c.turn.Session)})
	if err != nil || len(all) == 0 {
		return "", err
	}
	_, text := projections.ErrorOf(string(all[0].ErrorPayload))
	return text, nil
}
