package chat

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/ops/expect"
)

// asksLabels takes nothing but what it offers.
var asksLabels = handlerstest.OpenCode(events.QuestionAsked,
	map[string]any{"id": "que_1", "sessionID": "ses_1", "questions": []map[string]any{
		{"question": "Which?", "multiple": true, "custom": false, "options": []map[string]string{{"label": "a"}, {"label": "b"}}},
		{"question": "Anything?", "custom": false},
	}})

func TestAnswerQuestion(t *testing.T) {
	answers := func(index int, words ...string) AnswerQuestion {
		return AnswerQuestion{Chat: "c1", Question: "que_1", Index: index, Answers: words}
	}
	rejects := AnswerQuestion{Chat: "c1", Question: "que_1", Index: 1, Rejected: true}
	first := handlerstest.Fact{By: handlerstest.Alice, Cause: "cmd1",
		Data: events.QuestionAnswered{Question: "que_1", Answers: []string{"a"}}}
	rejected := handlerstest.Fact{By: handlerstest.Alice, Data: events.QuestionAnswered{Question: "que_1", Rejected: true}}
	settled := func(typ string) handlerstest.Fact {
		return handlerstest.OpenCode(typ, map[string]string{"sessionID": "ses_1", "requestID": "que_1"})
	}
	for name, c := range map[string]struct {
		given []handlerstest.Fact
		when  AnswerQuestion
		then  handlers.Code
		want  string
	}{
		"one answer":            {[]handlerstest.Fact{handlerstest.TwoRequests}, answers(1, "yes"), "", ""},
		"several":               {[]handlerstest.Fact{handlerstest.TwoRequests}, answers(0, "a", "b"), "", ""},
		"free text":             {[]handlerstest.Fact{handlerstest.TwoRequests}, answers(0, "neither, because …"), "", ""},
		"the longest":           {[]handlerstest.Fact{handlerstest.TwoRequests}, answers(0, "a", strings.Repeat("é", MaxAnswer/2-1)+"b"), "", ""},
		"one byte more":         {[]handlerstest.Fact{handlerstest.TwoRequests}, answers(0, "ab", strings.Repeat("é", MaxAnswer/2-1)+"b"), handlers.Invalid, "is 32769 bytes; the limit is 32768"},
		"one of them blank":     {[]handlerstest.Fact{handlerstest.TwoRequests}, answers(0, "a", " "), handlers.Invalid, "answer 2 of 2 is empty"},
		"the same twice":        {[]handlerstest.Fact{handlerstest.TwoRequests}, answers(0, "a", "a"), handlers.Invalid, `"a" is given twice`},
		"not UTF-8":             {[]handlerstest.Fact{handlerstest.TwoRequests}, answers(0, "a\xff"), handlers.Invalid, "not UTF-8"},
		"both":                  {[]handlerstest.Fact{handlerstest.TwoRequests}, AnswerQuestion{Chat: "c1", Question: "que_1", Answers: []string{"a"}, Rejected: true}, handlers.Invalid, "answered or rejected"},
		"only what is offered":  {[]handlerstest.Fact{asksLabels}, answers(0, "b", "a"), "", ""},
		"not what is offered":   {[]handlerstest.Fact{asksLabels}, answers(0, "a", "c"), handlers.Invalid, `"c" is none of those that question que_1/0 offers`},
		"nothing is offered":    {[]handlerstest.Fact{asksLabels}, answers(1, "my own"), "", ""},
		"interrupted":           {[]handlerstest.Fact{handlerstest.TwoRequests, {Data: events.QuestionInterrupted{Question: "que_1"}}}, answers(1, "yes"), "", ""},
		"rejected interrupted":  {[]handlerstest.Fact{handlerstest.TwoRequests, {Data: events.QuestionInterrupted{Question: "que_1"}}}, rejects, "", ""},
		"the other one":         {[]handlerstest.Fact{handlerstest.TwoRequests, first}, answers(1, "yes"), "", ""},
		"a rejection":           {[]handlerstest.Fact{handlerstest.TwoRequests, first}, rejects, "", ""},
		"several where one":     {[]handlerstest.Fact{handlerstest.TwoRequests}, answers(1, "yes", "no"), handlers.Invalid, "takes one answer, got 2"},
		"nothing":               {[]handlerstest.Fact{handlerstest.TwoRequests}, answers(0), handlers.Invalid, "empty"},
		"blanks":                {[]handlerstest.Fact{handlerstest.TwoRequests}, answers(0, " ", "\n"), handlers.Invalid, "empty"},
		"beyond":                {[]handlerstest.Fact{handlerstest.TwoRequests}, answers(2, "x"), handlers.NotFound, "que_1/2"},
		"before":                {[]handlerstest.Fact{handlerstest.TwoRequests}, answers(-1, "x"), handlers.NotFound, "que_1/-1"},
		"never asked":           {nil, answers(0, "x"), handlers.NotFound, "no question"},
		"answered before":       {[]handlerstest.Fact{handlerstest.TwoRequests, first}, answers(0, "b"), handlers.Conflict, "answered already, by user:alice"},
		"after a rejection":     {[]handlerstest.Fact{handlerstest.TwoRequests, rejected}, answers(1, "yes"), handlers.Conflict, "rejected by user:alice"},
		"expired":               {[]handlerstest.Fact{handlerstest.TwoRequests, {Data: events.QuestionExpired{Question: "que_1", Reason: "gone"}}}, answers(0, "a"), handlers.Conflict, "expired: gone"},
		"answered in OpenCode":  {[]handlerstest.Fact{handlerstest.TwoRequests, settled(events.QuestionReplied)}, answers(0, "a"), handlers.Conflict, "answered in OpenCode"},
		"rejected in OpenCode":  {[]handlerstest.Fact{handlerstest.TwoRequests, settled(events.QuestionRejected)}, answers(0, "a"), handlers.Conflict, "answered in OpenCode"},
		"OpenCode's own echoes": {[]handlerstest.Fact{handlerstest.TwoRequests, rejected, settled(events.QuestionRejected)}, answers(1, "a"), handlers.Conflict, "rejected by user:alice"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := newQuestions()
			handlerstest.Given(t, s, c.given...)
			d, _, err := s.answer(c.when)
			is.Equal(handlerstest.Refusal(t, err), c.then)
			if err != nil {
				expect.Contains(t, err.Error(), c.want)
				is.Equal(d, nil)
				return
			}
			is.Equal(d, events.QuestionAnswered{Question: "que_1", Index: c.when.Index, Answers: c.when.Answers,
				Rejected: c.when.Rejected})
		})
	}
}

func TestQuestionsExpireUnlessTheyAreOverOrHaveTheirAnswers(t *testing.T) {
	answered := func(index int) handlerstest.Fact {
		return handlerstest.Fact{By: handlerstest.Alice, Data: events.QuestionAnswered{Question: "que_1", Index: index,
			Answers: []string{"a"}}}
	}
	for name, c := range map[string]struct {
		given   []handlerstest.Fact
		expires bool
	}{
		"asked":             {[]handlerstest.Fact{handlerstest.TwoRequests}, true},
		"interrupted":       {[]handlerstest.Fact{handlerstest.TwoRequests, {Data: events.QuestionInterrupted{Question: "que_1"}}}, true},
		"half answered":     {[]handlerstest.Fact{handlerstest.TwoRequests, answered(1)}, true},
		"in a deleted chat": {[]handlerstest.Fact{{By: handlerstest.Alice, Data: events.ChatCreated{Title: "t"}}, handlerstest.TwoRequests, {By: handlerstest.Alice, Data: events.Deleted{}}}, true},
		"answered":          {[]handlerstest.Fact{handlerstest.TwoRequests, answered(1), answered(0)}, false},
		"rejected":          {[]handlerstest.Fact{handlerstest.TwoRequests, {By: handlerstest.Alice, Data: events.QuestionAnswered{Question: "que_1", Rejected: true}}}, false},
		"expired":           {[]handlerstest.Fact{handlerstest.TwoRequests, {Data: events.QuestionExpired{Question: "que_1", Reason: "gone"}}}, false},
		"answered there":    {[]handlerstest.Fact{handlerstest.TwoRequests, handlerstest.OpenCode(events.QuestionReplied, map[string]string{"sessionID": "ses_1", "requestID": "que_1"})}, false},
		"never asked":       {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := newQuestions()
			handlerstest.Given(t, s, c.given...)
			d := s.expire(ExpireQuestion{Chat: "c1", Question: "que_1", Reason: "asked again as que_2"})
			is.Equal(d != nil, c.expires)
			if d != nil {
				is.Equal(d, events.QuestionExpired{Question: "que_1", Reason: "asked again as que_2"})
			}
		})
	}
}
