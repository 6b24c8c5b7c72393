package outbox

import (
	"context"
	"errors"
	"fmt"
	"math"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/chat"
	"pocketcoder/projections"
	"pocketcoder/projections/turnstate"
)

// The reasons of what Hold holds or ends. A person reads them.
const (
	heldMessage = "Events of the log are missing, because they were lost or a backup was restored. OpenCode does not " +
		"have this message, and may have answered it before. Send it now, or delete it."
	heldDecision = "Events of the log after this request are missing, because they were lost or a backup was restored. " +
		"What it asks for may have been done already, so PocketCoder does not repeat it."
	heldAnswer = "Events of the log after the question are missing, because they were lost or a backup was restored. " +
		"The answer may have reached the model already, so it is not sent."
	heldEffect = "Events of the log after this request are missing, because they were lost or a backup was restored. " +
		"It may have been done already. Request it again if it was not."
)

// Hold compares the open effects of events before a sequence with OpenCode, after events of the log were lost or a
// backup was restored. A message that OpenCode has is recorded as sent. Every other effect may have been carried out,
// so a person decides: a message is held, and a decision, an answer, a revert, a fork or an omission ends with a
// reason. An abort stays open, because it only stops a turn. The read model must include what OpenCode holds.
func (o *Outbox) Hold(ctx context.Context, before uint64) error {
	ctx = log.UseLastSpace(ctx) // OpenCode stays disconnected until Hold is done, and stops must work with a full disk
	for _, hold := range []func(context.Context, int64) error{
		o.holdMessages, o.holdDecisions, o.holdAnswers, o.holdEffects,
	} {
		if err := hold(ctx, int64(before)); err != nil {
			return fmt.Errorf("hold effects of events before #%d: %w", before, err)
		}
	}
	return nil
}

func (o *Outbox) holdMessages(ctx context.Context, before int64) error {
	open, err := o.Model.PendingMessages(ctx)
	for _, m := range open {
		if m.Engine != o.Engine || m.IsHeldByLoss() {
			continue
		}
		// a message after the loss can be one that is lost: its id is derived from what caused it
		reported, found, failed := o.Model.ReportedMessage(ctx, m.Chat, client.TailOf(m.ID))
		switch {
		case failed != nil:
			return failed
		case found:
			err = o.recordSent(ctx, m, reported)
		case m.First < before:
			err = o.record(ctx, m.Chat, events.MessageHeld{Message: m.ID, Reason: heldMessage})
		}
		if err != nil {
			return err
		}
	}
	return err
}

// recordSent records that OpenCode has a message. A turn that it does not go on with is lost.
func (o *Outbox) recordSent(ctx context.Context, m projections.PendingMessage,
	reported projections.ReportedMessage) error {
	chosen, err := agent.One(ctx, o.Records, m.ChatAgent)
	if errors.As(err, new(handlers.Refused)) { // the agent was deleted since
		chosen, err = agent.Agent{ID: m.ChatAgent}, nil
	}
	if err != nil {
		return err
	}
	_, err = o.Chats.ClaimMessage(ctx, chat.ClaimMessage{
		Command: handlers.Command{Actor: events.EngineActor(o.Engine)}, Chat: m.Chat, Seen: math.MaxUint64,
		Sending: events.MessageSending{Message: m.ID, Session: reported.Session, EngineMessage: reported.EngineMessage,
			EngineParts: reported.PartIDs(), Agent: chosen.ID, AgentName: chosen.Name},
	})
	if refused := (handlers.Refused{}); errors.As(err, &refused) {
		return nil // a person has just deleted it
	}
	if err != nil {
		return err
	}
	err = o.record(ctx, m.Chat, events.MessageDelivered{Message: m.ID, EngineMessage: reported.EngineMessage})
	if err != nil {
		return err
	}
	s, _, err := o.Model.Session(ctx, reported.Session)
	if err != nil || s.Unanswered != reported.EngineMessage || s.Status != turnstate.Idle || s.Processing != "" {
		return err
	}
	return o.record(ctx, m.Chat, events.TurnLost{Session: s.ID})
}

// holdDecisions expires the requests that OpenCode has forgotten and whose approval would resume a turn: those that
// were approved before the loss, and those that the policy may decide again. What a person approves after the loss is
// valid.
func (o *Outbox) holdDecisions(ctx context.Context, before int64) error {
	requests, err := o.Model.PendingRequests(ctx)
	if err != nil {
		return err
	}
	decided, err := o.Model.DecidedRequests(ctx)
	if err != nil {
		return err
	}
	for _, p := range append(requests, decided...) {
		if p.Engine != o.Engine || p.AskedSeq >= before || !p.Interrupted ||
			p.DecidedSeq >= before && p.ApprovedBy != "" || p.Status == events.Draft && p.Referred {
			continue
		}
		resumed, err := o.resumed(ctx, p.Permission, ContinuePrompt)
		if err == nil && !resumed {
			err = o.record(ctx, p.Chat, events.PermissionExpired{Permission: p.EnginePermission, Reason: heldDecision})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// holdAnswers expires the answered questions that would resume a turn.
func (o *Outbox) holdAnswers(ctx context.Context, before int64) error {
	answered, err := o.Model.AnsweredQuestions(ctx)
	for _, group := range projections.AskedTogether(answered) {
		q := group[0]
		if q.Engine != o.Engine || q.Position >= before || !q.Interrupted {
			continue
		}
		err := o.record(ctx, q.Chat, events.QuestionExpired{Question: q.EngineQuestion, Reason: heldAnswer})
		if err != nil {
			return err
		}
	}
	return err
}

func (o *Outbox) holdEffects(ctx context.Context, before int64) error {
	open, err := o.Model.PendingEffects(ctx, o.Engine)
	for _, f := range open {
		if f.Position >= before || f.Kind == projections.EffectAbort {
			continue
		}
		if err := o.record(ctx, f.Chat, events.EffectFailed{Effect: f.ID, Reason: heldEffect}); err != nil {
			return err
		}
	}
	return err
}
