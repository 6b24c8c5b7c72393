package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/console"
	"pocketcoder/events"
	chats "pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

func killOpenCode(t *testing.T, p *process) {
	_, pid := p.engine(t)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// awaitForgottenQuestions waits until the log records that OpenCode forgot the questions and their turn has ended.
func (p *process) awaitForgottenQuestions(t *testing.T, chat string) {
	t.Helper()
	p.event(t, chat, "question.interrupted", nil)
	p.turnEnds(t, chat)
	for _, q := range rows[projections.Question](t, p, "questions", chat) {
		if !q.Interrupted || q.Status != projections.QuestionAsked && q.Status != projections.QuestionReplied {
			t.Fatalf("question is %+v", q)
		}
	}
}

// partlyAnswered is a chat in which one of two questions is answered.
type partlyAnswered struct {
	chat  string
	asked events.QuestionRequest
}

func (p *process) halfAnswered(t *testing.T) partlyAnswered {
	t.Helper()
	chat := p.chat(t, twoQuestions)
	question := p.awaitQuestion(t, chat)
	is.New(t).NoErr(p.answer(t, chats.AnswerQuestion{Chat: chat, Question: question.ID, Index: 1,
		Answers: []string{"A", "my own"}}))
	return partlyAnswered{chat, question}
}

// checkResumed checks that after a restart the other question waits, and that its answer resumes the turn.
func (q partlyAnswered) checkResumed(t *testing.T, p *process) {
	t.Helper()
	is := is.New(t)
	p.awaitForgottenQuestions(t, q.chat)
	is.Equal(len(p.resumes(t, q.chat)), 0) // one is open
	shown := p.admin(t).list(t, "questions", `chat = "`+q.chat+`" && status = "asked"`)
	is.Equal(len(shown), 1)
	is.Equal([]any{shown[0]["question"], shown[0]["interrupted"]}, []any{"Which colour?", true})

	stdout, _, code := p.cli(t, "2\n", "chat", q.chat)
	is.Equal(code, console.Completed)
	expect.Contains(t, stdout, "interrupted: OpenCode forgot it")
	expect.Contains(t, stdout, "its question was answered")
	is.True(strings.HasSuffix(strings.TrimSpace(stdout), "thanks"))
	is.Equal(p.text(t, q.chat), "thanks") // the script went on
	for i, q := range rows[projections.Question](t, p, "questions", q.chat) {
		is.Equal(q.Status, projections.QuestionReplied)
		is.Equal(string(q.Reply), []string{`"Blue"`, `"A, my own"`}[i])
	}
}

// checkNotResumedAgain checks that a further restart resumes nothing again.
func (q partlyAnswered) checkNotResumedAgain(t *testing.T, p *process) {
	t.Helper()
	is := is.New(t)
	p.submit(t, q.chat, "@@say still here")
	expect.Eventually(t, "the next message is answered", func() bool { return p.text(t, q.chat) == "thanks|still here" })
	p.turnEnds(t, q.chat)
	is.Equal(p.resumes(t, q.chat), map[string]int{q.asked.ID: 1})
	for _, e := range p.history(t, q.chat) {
		if d, _ := events.Decode(e); e.Subject.Kind == "message.submitted" && d.(events.MessageSubmitted).Resumes != "" {
			text := d.(events.MessageSubmitted).Parts[0].Text
			expect.Contains(t, text, "Question: Which colour?\nAnswer: Blue\n")
			expect.Contains(t, text, "Question: Which letters?\nAnswer: A, my own\n")
		}
	}
}
