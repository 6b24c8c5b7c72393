package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"pocketcoder/events"
	"pocketcoder/projections"
)

// questions adds questions that were missed, and resolves those that OpenCode no longer has.
func (c *comparison) questions(ctx context.Context) error {
	if err := c.ownQuestions(ctx); err != nil {
		return err
	}
	waiting, err := c.Model.PendingQuestions(ctx)
	if err != nil {
		return err
	}
	answered, err := c.Model.AnsweredQuestions(ctx)
	if err != nil {
		return err
	}
	for _, group := range projections.AskedTogether(append(waiting, answered...)) {
		q := group[0]
		if _, held := c.memory.questions[q.EngineQuestion]; held || q.Own || q.Interrupted || q.Engine != c.Engine {
			continue
		}
		if err := c.resolveMissingQuestions(ctx, group); err != nil {
			return err
		}
	}
	for id, raw := range c.memory.questions {
		if known, err := c.Model.QuestionsOf(ctx, id); err != nil {
			return err
		} else if len(known) > 0 {
			continue
		}
		var request events.QuestionRequest
		if err := json.Unmarshal(raw, &request); err != nil {
			return err
		}
		if err := c.reconciled(request.SessionID, events.QuestionAsked, raw); err != nil {
			return err
		}
	}
	return nil
}

// ownQuestions interrupts questions of the tool ask_person whose calls OpenCode forgot. A person can still answer.
func (c *comparison) ownQuestions(ctx context.Context) error {
	own, err := c.Model.OwnQuestions(ctx)
	if err != nil {
		return err
	}
	for _, q := range own {
		if _, busy := c.busy[q.Session]; busy || q.Engine != c.Engine {
			continue
		}
		status, _, err := c.endOf(ctx, q.EngineMessage, q.Call)
		if err == nil && status == "" {
			err = c.record(q.Chat, events.QuestionInterrupted{Question: q.EngineQuestion})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// resolveMissingQuestions ends or interrupts questions that OpenCode no longer has. If their session is busy, or their
// tool call has ended by itself, they were answered, by PocketCoder or in OpenCode. If not, OpenCode has forgotten
// them, and a person can still answer. An OpenCode that stops may fail the call as if the questions were rejected, so
// an error of the call counts only if a person has rejected one of them.
func (c *comparison) resolveMissingQuestions(ctx context.Context, group []projections.PendingQuestion) error {
	q := group[0]
	_, answered := c.busy[q.Session]
	if !answered {
		status, _, err := c.endOf(ctx, q.EngineMessage, q.Call)
		if err != nil {
			return err
		}
		answered = status == "completed" || status == "error" && slices.ContainsFunc(group, isRejected)
	}
	switch {
	case !answered:
		return c.record(q.Chat, events.QuestionInterrupted{Question: q.EngineQuestion})
	case q.Status == projections.QuestionAsked:
		return c.record(q.Chat, events.QuestionExpired{Question: q.EngineQuestion,
			Reason: "it was answered elsewhere, or its tool call is over"})
	}
	all, rejected, err := projections.AnswersTo(group)
	reply := map[string]any{"sessionID": q.Session, "requestID": q.EngineQuestion}
	if err != nil || rejected {
		return errors.Join(err, c.reconciled(q.Session, events.QuestionRejected, reply))
	}
	reply["answers"] = all
	return c.reconciled(q.Session, events.QuestionReplied, reply)
}

func isRejected(q projections.PendingQuestion) bool { return q.Status == projections.QuestionRejected }
