package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	opencode "pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	chats "pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

var twoQuestions = call("question", map[string]any{"questions": []map[string]any{
	{"question": "Which colour?", "header": "Colour", "options": []map[string]any{{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}}},
	{"question": "Which letters?", "header": "Letters", "multiple": true, "options": []map[string]any{{"label": "A", "description": "first"}, {"label": "B", "description": "second"}}},
}}) + "\n@@next\n@@say thanks"

// awaitQuestion waits for the questions of a chat. The tool that asks them needs no permission.
func (p *process) awaitQuestion(t testing.TB, chat string) (q events.QuestionRequest) {
	t.Helper()
	if err := json.Unmarshal(p.event(t, chat, "opencode.question.asked", nil).Data, &q); err != nil {
		t.Fatal(err)
	}
	return q
}

func (p *process) answer(t testing.TB, a chats.AnswerQuestion) error {
	t.Helper()
	if a.Rejected {
		a.Answers = nil
	}
	return p.AnswerQuestion(t.Context(), a.Question, a.Index, a.Answers)
}

func TestAnswersReachTheModelOnceComplete(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, twoQuestions)
	question := p.awaitQuestion(t, chat)
	open := rows[projections.Question](t, p, "questions", chat)
	is.Equal(len(open), 2)
	is.Equal([]string{open[0].Question, open[0].Status, open[1].Question},
		[]string{"Which colour?", projections.QuestionAsked, "Which letters?"})
	is.Equal(string(open[1].Choices), `["A","B"]`)
	is.Equal([]bool{open[0].Multiple, open[1].Multiple}, []bool{false, true})

	is.NoErr(p.answer(t, chats.AnswerQuestion{Chat: chat, Question: question.ID, Index: 1,
		Answers: []string{"A", "my own"}}))
	is.Equal(p.row(t, chat).Turn, projections.TurnAssistant) // one is open
	is.NoErr(p.answer(t, chats.AnswerQuestion{Chat: chat, Question: question.ID, Index: 0, Answers: []string{"Blue"}}))
	// the first wins
	is.True(p.answer(t, chats.AnswerQuestion{Chat: chat, Question: question.ID, Index: 0,
		Answers: []string{"Red"}}) != nil)
	p.turnEnds(t, chat)
	output := p.tools(t, chat)[0].State.Output
	expect.Contains(t, output, `"Which colour?"="Blue"`)
	expect.Contains(t, output, `"Which letters?"="A, my own"`)
	is.Equal(p.text(t, chat), "thanks")
	for i, q := range rows[projections.Question](t, p, "questions", chat) {
		is.Equal(q.Status, projections.QuestionReplied)
		is.Equal(q.RepliedBy, "user:operator")
		is.True(q.EngineReplied)
		is.Equal(string(q.Reply), []string{`"Blue"`, `"A, my own"`}[i])
	}
}

func TestAbortedQuestionExpires(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	here, there := p.chat(t, twoQuestions), p.chat(t, twoQuestions)
	p.awaitQuestion(t, here)
	p.awaitQuestion(t, there)
	p.abort(t, here)
	api, _ := p.engine(t)
	is.NoErr(api.Abort(t.Context(), p.row(t, there).Session)) // in OpenCode's own interface
	for _, chat := range []string{here, there} {
		p.event(t, chat, "question.expired", nil)
		p.turnEnds(t, chat)
		for _, q := range rows[projections.Question](t, p, "questions", chat) {
			is.Equal([]string{q.Status, q.Reason}, []string{projections.QuestionExpired, "the turn was aborted"})
		}
	}
	expect.Eventually(t, "OpenCode waits for none of them", func() bool {
		listed, err := api.QuestionRequests(t.Context(), p.workspace)
		is.NoErr(err)
		return !slices.ContainsFunc(listed, func(q opencode.Request) bool {
			return strings.Contains(string(q.Raw), p.row(t, here).Session) ||
				strings.Contains(string(q.Raw), p.row(t, there).Session)
		})
	})
	is.Equal(len(p.resumes(t, here))+len(p.resumes(t, there)), 0)
}
