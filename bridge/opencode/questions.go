package opencode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/projections"
	"pocketcoder/projections/pending"
)

// Answered is how the prompt begins that resumes a turn which was lost with questions pending, once a person has answered
// them: the questions and the answers follow.
const Answered = "You asked, and were interrupted before you had an answer. Here it is:"

// questions adds those we did not hear of, and settles those OpenCode does not hold any more.
func (c *comparison) questions(ctx context.Context) error {
	waiting, err := pending.Questions(ctx, c.Model)
	if err != nil {
		return err
	}
	answered, err := pending.AnsweredQuestions(ctx, c.Model)
	if err != nil {
		return err
	}
	for _, group := range pending.Together(append(waiting, answered...)) {
		q := group[0]
		if _, there := c.present.questions[q.EngineQuestion]; there || q.Interrupted || q.Engine != c.Engine {
			continue
		}
		if err := c.goneQuestions(ctx, group); err != nil {
			return err
		}
	}
	for id, raw := range c.present.questions {
		if known, err := pending.QuestionsOf(ctx, c.Model, id); err != nil {
			return err
		} else if len(known) > 0 {
			continue
		}
		var ask events.QuestionAsk
		if err := json.Unmarshal(raw, &ask); err != nil {
			return err
		}
		if err := c.reconciled(ask.SessionID, events.QuestionAsked, raw); err != nil {
			return err
		}
	}
	return nil
}

// goneQuestions settles questions that OpenCode does not hold any more. While their session goes on, or when the call that
// asked has ended by itself, they were answered: as they were here, or by somebody else. When neither is so, OpenCode forgot
// them, and a person's answers can still be given to the model.
func (c *comparison) goneQuestions(ctx context.Context, group []pending.Question) error {
	q := group[0]
	_, answered := c.busy[q.Session]
	if !answered {
		var err error
		if answered, err = c.over(ctx, q.EngineMessage, q.Call); err != nil {
			return err
		}
	}
	switch {
	case !answered:
		return c.own(q.Chat, events.QuestionInterrupted{Question: q.EngineQuestion})
	case q.Status == projections.QuestionAsked:
		return c.own(q.Chat, events.QuestionExpired{Question: q.EngineQuestion, Reason: "it was answered elsewhere, or its tool call is over"})
	}
	all, rejected, err := pending.AnswersTo(group)
	reply := map[string]any{"sessionID": q.Session, "requestID": q.EngineQuestion}
	if err != nil || rejected {
		return errors.Join(err, c.reconciled(q.Session, events.QuestionRejected, reply))
	}
	reply["answers"] = all
	return c.reconciled(q.Session, events.QuestionReplied, reply)
}

// startQuestions replies to questions that have their answers, and gives up those that need none any more. What is open is
// noted.
func (r *replies) startQuestions(ctx context.Context, open map[string]bool) error {
	answered, err := pending.AnsweredQuestions(ctx, r.Model)
	if err != nil {
		return err
	}
	for _, group := range pending.Together(answered) {
		q := group[0]
		request := q.EngineQuestion
		if q.Interrupted { // OpenCode may have taken the answers before it forgot the questions
			request = "resume/" + request
		}
		open[request] = true
		if q.Engine == r.Engine {
			r.once(ctx, request, func() error { return r.answers(ctx, q.EngineQuestion) })
		}
	}
	dead, err := pending.DeadQuestions(ctx, r.Model)
	if err != nil {
		return err
	}
	for _, d := range dead {
		request := fmt.Sprintf("give up %s/%t", d.EngineQuestion, d.Interrupted)
		open[request] = true
		if d.Engine == r.Engine {
			r.once(ctx, request, func() error { return r.giveUp(ctx, d) })
		}
	}
	return nil
}

// answers gives OpenCode the answers to questions asked together, or their rejection. Questions it forgot are answered by a
// prompt. What is known now counts, not what was when the reply was first tried.
func (r *replies) answers(ctx context.Context, question string) error {
	group, err := pending.QuestionsOf(ctx, r.Model, question)
	if err != nil || len(group) == 0 {
		return err
	}
	all, rejected, err := pending.AnswersTo(group)
	if err != nil {
		return err
	}
	switch q := group[0]; {
	case q.EngineReplied, q.Status == projections.QuestionExpired:
		return nil
	case q.Interrupted:
		return r.resumeAnswered(ctx, group, all)
	case rejected:
		err = r.api().Dismiss(ctx, q.Directory, question)
	default:
		err = r.api().Answer(ctx, q.Directory, question, all)
	}
	if errors.Is(err, client.ErrGone) {
		return r.goneReply(ctx, question)
	}
	return err
}

// goneReply is for questions that OpenCode does not know: it has restarted, which the read model says by the time the bridge
// is live again, or the answers came too late.
func (r *replies) goneReply(ctx context.Context, question string) error {
	if err := r.live.wait(ctx); err != nil {
		return err
	}
	group, err := pending.QuestionsOf(ctx, r.Model, question)
	if err != nil || len(group) == 0 || group[0].EngineReplied || group[0].Interrupted { // interrupted ones have a reply of their own
		return err
	}
	return r.record(ctx, group[0].Chat, events.QuestionExpired{Question: question, Reason: "OpenCode does not wait for it any more"})
}

// resumeAnswered gives the model the answers to questions that OpenCode forgot. Those of a subagent, which is gone, are for
// the one that takes its place.
func (r *replies) resumeAnswered(ctx context.Context, group []pending.Question, all [][]string) error {
	q := group[0]
	var text strings.Builder
	text.WriteString(Answered + "\n")
	for i, one := range group {
		fmt.Fprintf(&text, "\nQuestion: %s\nAnswer: %s\n", one.Question.Question, strings.Join(all[i], ", "))
	}
	if s, _ := r.tracker.get(q.Session); s.parent != "" {
		text.WriteString("\nA subagent had asked. It is gone: call it again, with these answers in its prompt.")
	} else {
		text.WriteString("\nGo on with that; there is no need to ask again.")
	}
	err := r.resume(ctx, q.Chat, q.EngineQuestion, q.RepliedBy, text.String())
	if refused := (handlers.Refused{}); errors.As(err, &refused) {
		return r.record(ctx, q.Chat, events.QuestionExpired{Question: q.EngineQuestion, Reason: refused.Text})
	}
	return err
}

// giveUp says of a question that it needs no answer any more. One that OpenCode neither waits for nor has forgotten has an end
// that we shall hear of.
func (r *replies) giveUp(ctx context.Context, d pending.DeadQuestion) error {
	if !d.Interrupted {
		held, err := r.api().QuestionRequests(ctx, d.Directory)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(held, func(q client.QuestionRequest) bool { return q.ID == d.EngineQuestion }) {
			return nil
		}
	}
	return r.dropQuestion(ctx, d.Question, d.Why)
}

// dropQuestion expires a question, and tells OpenCode, which keeps waiting for an answer to a call that was aborted. That it
// does not hear is no reason to try again.
func (b *Bridge) dropQuestion(ctx context.Context, q pending.Question, reason string) error {
	seq, err := b.Chats.ExpireQuestion(ctx, chat.ExpireQuestion{
		Command: handlers.Command{Actor: events.EngineActor(b.Engine)}, Chat: q.Chat, Question: q.EngineQuestion, Reason: reason,
	})
	if err == nil {
		err = b.Model.Wait(ctx, seq)
	}
	if err != nil || q.Interrupted {
		return err
	}
	if err := b.api().Dismiss(ctx, q.Directory, q.EngineQuestion); err != nil && !errors.Is(err, client.ErrGone) {
		b.Logger.Warn("drop question", "err", err)
	}
	return nil
}
