package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"time"

	"pocketcoder/bridge/outbox"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/log/sleep"
	"pocketcoder/handlers"
	"pocketcoder/handlers/budget"
	"pocketcoder/handlers/chat"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// BudgetPrompt resumes a turn that a budget had stopped, after a person has approved more.
const BudgetPrompt = "Your turn was paused because what may be spent was used up. More is allowed now: go on from where you stopped."

// Spending keeps the chats of all engines within their budgets. All fields must be set.
type Spending struct {
	Log    *log.Log
	Model  *projections.Model
	Chats  *chat.Chats
	Limits *budget.Budgets
	Logger *slog.Logger
}

// Run enforces budgets until ctx ends: it stops turns, asks a person for more, resumes turns when more is allowed,
// and withdraws requests that are no longer needed. A step's cost is known only at its end, so the last step may
// exceed the limit. The cost of a stopped step stays unknown. Outbox holds back new messages.
func (o *Spending) Run(ctx context.Context) error {
	seen := o.Model.Seq()
	warn := func(e events.Event, err error) {
		o.Logger.Warn("budget", "chat", e.Subject.ID, "seq", e.Seq, "err", err)
	}
	return handlers.RunAll(ctx,
		func(ctx context.Context) error {
			// the next step finds that a limit is reached, too
			ctx = log.ConsumeAfter(ctx, func(context.Context) (uint64, error) { return seen, nil })
			return o.Log.Consume(ctx, BudgetConsumer, events.ChatOpenCodeSubject("*", "message.updated"), o.stepEnded, warn)
		},
		func(ctx context.Context) error {
			ctx = log.ConsumeAfter(ctx, func(ctx context.Context) (uint64, error) {
				return o.Model.DecisionsDone(ctx, events.KindBudget)
			})
			return o.Log.Consume(ctx, BudgetDecisionsConsumer, events.ChatSubject("*", events.PermissionDecided{}.Kind()),
				o.moreDecided, warn)
		},
		func(ctx context.Context) error {
			filter := events.ConfigSubject(budget.Collection, "*", "*")
			return o.Log.Read(ctx, 0, []string{filter}, func(log.Batch) error { return o.releaseBudgets(ctx) })
		},
		func(ctx context.Context) error { return o.everyDay(ctx, o.releaseBudgets) })
}

// stepEnded checks the limits after an assistant message whose cost is known.
func (o *Spending) stepEnded(ctx context.Context, e events.Event) error {
	var step struct {
		Info struct {
			Role   string
			Cost   float64
			Tokens struct{ Input, Output, Reasoning float64 }
		}
	}
	if err := json.Unmarshal(e.Data, &step); err != nil {
		return nil // the read model skips this event too, and counts no cost of it
	}
	i := step.Info
	if i.Role != "assistant" || i.Cost+i.Tokens.Input+i.Tokens.Output+i.Tokens.Reasoning == 0 {
		return nil
	}
	if all, err := o.Limits.List(ctx); err != nil || len(all) == 0 {
		return err
	}
	if err := o.Model.Wait(ctx, e.Seq); err != nil {
		return err
	}
	chat, known, err := o.Model.Chat(ctx, e.Subject.ID)
	if err != nil || !known || chat.Removed {
		return err
	}
	newest, goesOn, err := o.Model.UnfinishedStep(ctx, chat.ID)
	if err == nil && goesOn {
		var aborting bool
		aborting, err = o.aborting(ctx, chat.ID)
		goesOn = !aborting
	}
	if err != nil {
		return err
	}
	return o.Limits.Pause(ctx, budget.Step{
		Chat: chat.ID, Seq: e.Seq, Time: e.Time, Turn: goesOn, Began: uint64(newest.First),
	}, time.Now(), spentOf(o.Model))
}

// aborting reports whether an abort of the chat's turn is open. Such an abort stops the turn anyway.
func (o *Spending) aborting(ctx context.Context, chat string) (bool, error) {
	if err := o.Model.CatchUp(ctx); err != nil {
		return false, err
	}
	return o.Model.IsAborting(ctx, chat)
}

// spentOf returns a function that returns the cost and tokens that the read model counts.
func spentOf(model *projections.Model) budget.SpendingFunc {
	return func(ctx context.Context, of budget.Span) (cost, tokens float64, err error) {
		s, err := model.Spending(ctx, projections.SpendingSpan{Chat: of.Chat, User: of.User, Project: of.Project,
			Day: of.Day})
		return s.Cost, float64(s.Tokens), err
	}
}

// moreDecided resumes the chats that an approved request for more budget had stopped. The ids of the prompts are
// derived from the id of the request, so each chat resumes once.
func (o *Spending) moreDecided(ctx context.Context, e events.Event) error {
	var d events.PermissionDecided
	if err := json.Unmarshal(e.Data, &d); err != nil || d.Type != events.KindBudget ||
		d.Decision != events.Authorized {
		return nil
	}
	chats, err := o.Limits.Stopped(ctx, d.Permission)
	if err != nil {
		return err
	}
	for _, chatID := range chats {
		id := store.RecordID("resume/" + d.Permission + "/" + chatID)
		_, _, err := o.Chats.SubmitMessage(ctx, chat.SubmitMessage{
			Command: handlers.Command{ID: id, Actor: e.Actor}, Chat: chatID, Message: id, Resumes: d.Permission,
			Parts: []events.Part{{Type: "text", Text: BudgetPrompt}},
		})
		if r := (handlers.Refused{}); errors.As(err, &r) && (r.Code == handlers.NotFound || r.Field == "id") {
			continue // the chat was deleted, or a client has used the id already
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// releaseBudgets expires pending requests for more that are obsolete. If none is pending it does not read the log,
// which has few such requests among all events.
func (o *Spending) releaseBudgets(ctx context.Context) error {
	err := o.Model.CatchUp(ctx)
	var waiting []projections.Permission
	if err == nil {
		waiting, err = o.Model.Permissions(ctx, "", events.Draft)
	}
	isForMore := func(p projections.Permission) bool { return p.Permission == events.KindBudget }
	if slices.ContainsFunc(waiting, isForMore) {
		err = o.Limits.Release(ctx, time.Now(), spentOf(o.Model))
	}
	if err != nil && ctx.Err() == nil {
		o.Logger.Warn("budget", "err", err) // the next change of a budget or the next day tries again
	}
	return ctx.Err()
}

// everyDay calls work when a new day of budgets begins.
func (o *Spending) everyDay(ctx context.Context, work func(context.Context) error) error {
	for {
		if err := sleep.For(ctx, untilTomorrow(time.Now())); err != nil {
			return err
		}
		if err := work(ctx); err != nil {
			return err
		}
	}
}

// untilTomorrow returns the time until the next day of budgets begins, in UTC.
func untilTomorrow(now time.Time) time.Duration {
	const day = 24 * time.Hour
	return now.UTC().Truncate(day).Add(day + time.Millisecond).Sub(now)
}

// checkBudgets returns an Again if a budget holds back a message that was never sent, or if the budgets cannot be
// read. If a budget holds it back, checkBudgets records the reason for all messages of its chat, because one that was
// written after a denial asks for more again.
func (o *Outbox) checkBudgets(ctx context.Context, m projections.PendingMessage,
	all []projections.PendingMessage) error {
	held, err := o.hold(ctx, m)
	for _, other := range all {
		if held && err == nil && other.ID != m.ID {
			_, err = o.hold(ctx, other)
		}
	}
	switch {
	case err != nil:
		o.Logger.Warn("check budgets", "chat", m.Chat, "message", m.ID, "err", err)
		return outbox.Again{Err: errors.New("check budgets"), After: o.Pause}
	case held:
		return outbox.Again{Err: errors.New("a budget holds the message back"), After: untilTomorrow(time.Now()),
			OrWoken: true}
	}
	return nil
}

// hold reports whether a budget holds back a message, and records the reason.
func (o *Outbox) hold(ctx context.Context, m projections.PendingMessage) (isHeld bool, err error) {
	held, err := o.Limits.Hold(ctx, m.Chat, uint64(m.First), time.Now(), spentOf(o.Model))
	if err == nil && held != nil && (m.HeldBy != held.Permission || m.Held != held.Reason) {
		err = o.record(ctx, m.Chat, events.MessageHeld{Message: m.ID, Permission: held.Permission, Reason: held.Reason})
	}
	return held != nil, err
}
