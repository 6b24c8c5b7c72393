package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/projections"
)

var twoQuestions = call("question", map[string]any{"questions": []map[string]any{
	{"question": "Which colour?", "header": "Colour", "options": []map[string]any{{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}}},
	{"question": "Which letters?", "header": "Letters", "multiple": true, "options": []map[string]any{{"label": "A", "description": "first"}, {"label": "B", "description": "second"}}},
}}) + "\n@@next\n@@say thanks"

// asked waits for the questions of a chat. The tool that asks them needs no permission.
func (p *process) asked(t testing.TB, chat string) (q events.QuestionAsk) {
	t.Helper()
	if err := json.Unmarshal(p.event(t, chat, "opencode.question.asked", nil).Data, &q); err != nil {
		t.Fatal(err)
	}
	return q
}

func (p *process) answer(t testing.TB, a handlers.AnswerQuestion) error {
	t.Helper()
	_, err := handlers.Give(t.Context(), p.nc, "question.answer", a)
	return err
}

func TestAnswersReachTheModelWhenAllAreGiven(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, twoQuestions)
	asked := p.asked(t, chat)
	open := rows[projections.Question](t, p, "questions", chat)
	is.Equal(len(open), 2)
	is.Equal([]string{open[0].Question, open[0].Status, open[1].Question}, []string{"Which colour?", projections.QuestionAsked, "Which letters?"})
	is.Equal(string(open[1].Choices), `["A","B"]`)
	is.Equal([]bool{open[0].Multiple, open[1].Multiple}, []bool{false, true})

	is.NoErr(p.answer(t, handlers.AnswerQuestion{Chat: chat, Question: asked.ID, Index: 1, Answers: []string{"A", "my own"}}))
	is.Equal(p.row(t, chat).Turn, projections.TurnAssistant) // one is open
	is.NoErr(p.answer(t, handlers.AnswerQuestion{Chat: chat, Question: asked.ID, Index: 0, Answers: []string{"Blue"}}))
	is.True(p.answer(t, handlers.AnswerQuestion{Chat: chat, Question: asked.ID, Index: 0, Answers: []string{"Red"}}) != nil) // the first wins
	p.turnEnds(t, chat)
	output := p.tools(t, chat)[0].State.Output
	is.True(strings.Contains(output, `"Which colour?"="Blue"`))
	is.True(strings.Contains(output, `"Which letters?"="A, my own"`))
	is.Equal(p.text(t, chat), "thanks")
	for i, q := range rows[projections.Question](t, p, "questions", chat) {
		is.Equal(q.Status, projections.QuestionReplied)
		is.Equal(q.RepliedBy, "user:operator")
		is.True(q.EngineReplied)
		is.Equal(string(q.Reply), []string{`["Blue"]`, `["A","my own"]`}[i])
	}
}

func TestRejectedQuestionStopsTheTurn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, twoQuestions)
	asked := p.asked(t, chat)
	is.NoErr(p.answer(t, handlers.AnswerQuestion{Chat: chat, Question: asked.ID, Rejected: true}))
	p.turnEnds(t, chat)
	is.Equal(p.tools(t, chat)[0].State.Status, "error")
	is.Equal(p.text(t, chat), "")
	for _, q := range rows[projections.Question](t, p, "questions", chat) {
		is.Equal(q.Status, projections.QuestionRejected)
	}
}
