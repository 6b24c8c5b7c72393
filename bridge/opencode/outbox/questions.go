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
)

// AnswersPrompt begins the prompt that resumes a turn which was lost with questions pending, after a person has
// answered them. The questions and answers follow.
const AnswersPrompt = "You asked, and were interrupted before you had an answer. Here it is:"

// questions lists the effects of answered questions, and of questions that need no answer any more.
func (s *schedule) questions(ctx context.Context) (open []effect, err error) {
	answered, err := s.Model.AnsweredQuestions(ctx)
	if err != nil {
		return nil, err
	}
	for _, group := range projections.AskedTogether(answered) {
		q := group[0]
		key := "answer/" + q.EngineQuestion
		if q.Interrupted { // a key of its own, because a reply may have been tried before
			key = "resume/" + q.EngineQuestion
		}
		send := func(ctx context.Context) error { return s.sendAnswers(ctx, q.EngineQuestion) }
		open = append(open, s.questionEffects(key, q, send)...)
	}
	obsolete, err := s.Model.ObsoleteQuestions(ctx)
	for _, d := range obsolete {
		key := fmt.Sprintf("expire/%s/%t", d.EngineQuestion, d.Interrupted)
		drop := func(ctx context.Context) error { return s.dropObsolete(ctx, d) }
		open = append(open, s.questionEffects(key, d.PendingQuestion, drop)...)
	}
	return open, err
}

// questionEffects returns the effect of a question, none if the question belongs to another engine.
func (s *schedule) questionEffects(key string, q projections.PendingQuestion,
	try func(context.Context) error) []effect {
	if q.Engine != s.Engine {
		return nil
	}
	return []effect{{Key: key, Target: q.Chat, Pause: s.Pause, Of: work{kind: replyKind, seq: q.Position,
		try: func(ctx context.Context, _ int) error { return try(ctx) }}}}
}

// sendAnswers sends OpenCode the answers to the questions of one tool call, or their rejection. If OpenCode has
// forgotten the questions, the answers go into a prompt. Each try reads the answers again.
func (o *Outbox) sendAnswers(ctx context.Context, question string) error {
	group, err := o.Model.QuestionsOf(ctx, question)
	if err != nil || len(group) == 0 {
		return err
	}
	all, rejected, err := projections.AnswersTo(group)
	if err != nil {
		return err
	}
	switch q := group[0]; {
	case q.EngineReplied, q.Status == projections.QuestionExpired:
		return nil
	case q.Interrupted:
		return o.resumeAnswered(ctx, group, all)
	case rejected:
		err = o.Ingest.Current().Dismiss(ctx, q.Directory, question)
	default:
		err = o.Ingest.Current().Answer(ctx, q.Directory, question, all)
	}
	if errors.Is(err, client.ErrGone) {
		return o.expireForgotten(ctx, question)
	}
	return err
}

// expireForgotten expires questions that OpenCode does not know, because the answers came too late. If OpenCode has
// restarted, the questions are interrupted by the time it is connected again, and have another effect.
func (o *Outbox) expireForgotten(ctx context.Context, question string) error {
	if err := o.Ingest.WaitConnected(ctx); err != nil {
		return err
	}
	group, err := o.Model.QuestionsOf(ctx, question)
	if err != nil || len(group) == 0 || group[0].EngineReplied || group[0].Interrupted {
		return err
	}
	return o.record(ctx, group[0].Chat, events.QuestionExpired{Question: question,
		Reason: "OpenCode does not wait for it any more"})
}

// resumeAnswered submits a prompt with the answers to questions that OpenCode forgot. If a subagent asked the
// questions, the prompt says so, because the subagent has ended.
func (o *Outbox) resumeAnswered(ctx context.Context, group []projections.PendingQuestion, all [][]string) error {
	q := group[0]
	var text strings.Builder
	text.WriteString(AnswersPrompt + "\n")
	for i, one := range group {
		fmt.Fprintf(&text, "\nQuestion: %s\nAnswer: %s\n", one.Question.Question, strings.Join(all[i], ", "))
	}
	if o.Ingest.Parent(q.Session) != "" {
		text.WriteString("\nA subagent had asked. It is gone: call it again, with these answers in its prompt.")
	} else {
		text.WriteString("\nGo on with that; there is no need to ask again.")
	}
	err := o.resume(ctx, q.Chat, q.EngineQuestion, q.RepliedBy, text.String())
	if refused := (handlers.Refused{}); errors.As(err, &refused) {
		return o.record(ctx, q.Chat, events.QuestionExpired{Question: q.EngineQuestion, Reason: refused.Text})
	}
	return err
}

// dropObsolete expires a question that needs no answer any more. If OpenCode neither waits for the question nor has
// forgotten it, an event about its end will arrive. A question of ask_person whose call ended is interrupted instead:
// its answer goes to the model as a message.
func (o *Outbox) dropObsolete(ctx context.Context, d projections.ObsoleteQuestion) error {
	if d.Answerable {
		return o.record(ctx, d.Chat, events.QuestionInterrupted{Question: d.EngineQuestion})
	}
	if !d.Interrupted && !d.Own {
		held, err := o.Ingest.Current().QuestionRequests(ctx, d.Directory)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(held, func(q client.Request) bool { return q.ID == d.EngineQuestion }) {
			return nil
		}
	}
	return o.dropQuestion(ctx, d.PendingQuestion, d.Why)
}

// dropQuestion expires a question, and dismisses it in OpenCode, which keeps waiting after the call was aborted. A
// failed dismissal is not repeated.
func (o *Outbox) dropQuestion(ctx context.Context, q projections.PendingQuestion, reason string) error {
	seq, err := o.Chats.ExpireQuestion(ctx, chat.ExpireQuestion{
		Command: handlers.Command{Actor: events.EngineActor(o.Engine)}, Chat: q.Chat, Question: q.EngineQuestion, Reason: reason,
	})
	if err == nil {
		err = o.Model.Wait(ctx, seq)
	}
	if err != nil || q.Interrupted || q.Own {
		return err
	}
	err = o.Ingest.Current().Dismiss(ctx, q.Directory, q.EngineQuestion)
	if err != nil && !errors.Is(err, client.ErrGone) {
		o.Logger.Warn("dismiss question", "err", err)
	}
	return nil
}
