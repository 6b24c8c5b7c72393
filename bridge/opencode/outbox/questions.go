package outbox

import (
	"context"
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

// answers sends OpenCode the answers to the questions of one tool call, or their rejection. The answers to questions that OpenCode forgot
// go into a prompt. Each try reads the answers again.
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
		err = r.Current().Dismiss(ctx, q.Directory, question)
	default:
		err = r.Current().Answer(ctx, q.Directory, question, all)
	}
	if errors.Is(err, client.ErrGone) {
		return r.goneReply(ctx, question)
	}
	return err
}

// goneReply is for questions that OpenCode does not know: it has restarted, which the read model says by the time OpenCode
// is connected again, or the answers came too late.
func (r *replies) goneReply(ctx context.Context, question string) error {
	if err := r.WaitConnected(ctx); err != nil {
		return err
	}
	group, err := pending.QuestionsOf(ctx, r.Model, question)
	if err != nil || len(group) == 0 || group[0].EngineReplied || group[0].Interrupted { // interrupted ones have a reply of their own
		return err
	}
	return r.record(ctx, group[0].Chat, events.QuestionExpired{Question: question, Reason: "OpenCode does not wait for it any more"})
}

// resumeAnswered sends the model a prompt with the answers to questions that OpenCode forgot. If a subagent asked them, the prompt says so,
// because that subagent is gone.
func (r *replies) resumeAnswered(ctx context.Context, group []pending.Question, all [][]string) error {
	q := group[0]
	var text strings.Builder
	text.WriteString(Answered + "\n")
	for i, one := range group {
		fmt.Fprintf(&text, "\nQuestion: %s\nAnswer: %s\n", one.Question.Question, strings.Join(all[i], ", "))
	}
	if r.Parent(q.Session) != "" {
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
		held, err := r.Current().QuestionRequests(ctx, d.Directory)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(held, func(q client.Request) bool { return q.ID == d.EngineQuestion }) {
			return nil
		}
	}
	return r.dropQuestion(ctx, d.Question, d.Why)
}

// dropQuestion expires a question, and tells OpenCode, which keeps waiting for an answer to a call that was aborted. That it
// does not hear is no reason to try again.
func (o *Outbox) dropQuestion(ctx context.Context, q pending.Question, reason string) error {
	seq, err := o.Chats.ExpireQuestion(ctx, chat.ExpireQuestion{
		Command: handlers.Command{Actor: events.EngineActor(o.Engine)}, Chat: q.Chat, Question: q.EngineQuestion, Reason: reason,
	})
	if err == nil {
		err = o.Model.Wait(ctx, seq)
	}
	if err != nil || q.Interrupted {
		return err
	}
	if err := o.Current().Dismiss(ctx, q.Directory, q.EngineQuestion); err != nil && !errors.Is(err, client.ErrGone) {
		o.Logger.Warn("drop question", "err", err)
	}
	return nil
}
