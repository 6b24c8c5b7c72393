package handlers

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
)

// asksTwo asks two questions together; the first takes several answers.
var asksTwo = openCode(events.QuestionAsked, map[string]any{"id": "que_1", "sessionID": "ses_1", "questions": []map[string]any{
	{"question": "Which?", "multiple": true, "options": []map[string]string{{"label": "a"}, {"label": "b"}}}, {"question": "Sure?"},
}})

// asksLabels takes nothing but what it offers.
var asksLabels = openCode(events.QuestionAsked, map[string]any{"id": "que_1", "sessionID": "ses_1", "questions": []map[string]any{
	{"question": "Which?", "multiple": true, "custom": false, "options": []map[string]string{{"label": "a"}, {"label": "b"}}},
	{"question": "Anything?", "custom": false},
}})

func TestAnswerQuestion(t *testing.T) {
	answers := func(index int, words ...string) AnswerQuestion {
		return AnswerQuestion{Chat: "c1", Question: "que_1", Index: index, Answers: words}
	}
	rejects := AnswerQuestion{Chat: "c1", Question: "que_1", Index: 1, Rejected: true}
	first := fact{by: alice, cause: "cmd1", data: events.QuestionAnswered{Question: "que_1", Answers: []string{"a"}}}
	rejected := fact{by: alice, data: events.QuestionAnswered{Question: "que_1", Rejected: true}}
	settled := func(typ string) fact {
		return openCode(typ, map[string]string{"sessionID": "ses_1", "requestID": "que_1"})
	}
	for name, c := range map[string]struct {
		given []fact
		when  AnswerQuestion
		then  Code
		says  string
	}{
		"one answer":            {[]fact{asksTwo}, answers(1, "yes"), "", ""},
		"several":               {[]fact{asksTwo}, answers(0, "a", "b"), "", ""},
		"free text":             {[]fact{asksTwo}, answers(0, "neither, because …"), "", ""},
		"the longest":           {[]fact{asksTwo}, answers(0, "a", strings.Repeat("é", MaxAnswer/2-1)+"b"), "", ""},
		"one byte more":         {[]fact{asksTwo}, answers(0, "ab", strings.Repeat("é", MaxAnswer/2-1)+"b"), Invalid, "is 32769 bytes; the limit is 32768"},
		"one of them blank":     {[]fact{asksTwo}, answers(0, "a", " "), Invalid, "answer 2 of 2 is empty"},
		"the same twice":        {[]fact{asksTwo}, answers(0, "a", "a"), Invalid, `"a" is given twice`},
		"not UTF-8":             {[]fact{asksTwo}, answers(0, "a\xff"), Invalid, "not UTF-8"},
		"both":                  {[]fact{asksTwo}, AnswerQuestion{Chat: "c1", Question: "que_1", Answers: []string{"a"}, Rejected: true}, Invalid, "answered or rejected"},
		"only what is offered":  {[]fact{asksLabels}, answers(0, "b", "a"), "", ""},
		"not what is offered":   {[]fact{asksLabels}, answers(0, "a", "c"), Invalid, `"c" is none of those that question que_1/0 offers`},
		"nothing is offered":    {[]fact{asksLabels}, answers(1, "my own"), "", ""},
		"interrupted":           {[]fact{asksTwo, {data: events.QuestionInterrupted{Question: "que_1"}}}, answers(1, "yes"), "", ""},
		"rejected interrupted":  {[]fact{asksTwo, {data: events.QuestionInterrupted{Question: "que_1"}}}, rejects, "", ""},
		"the other one":         {[]fact{asksTwo, first}, answers(1, "yes"), "", ""},
		"a rejection":           {[]fact{asksTwo, first}, rejects, "", ""},
		"several where one":     {[]fact{asksTwo}, answers(1, "yes", "no"), Invalid, "takes one answer, got 2"},
		"nothing":               {[]fact{asksTwo}, answers(0), Invalid, "empty"},
		"blanks":                {[]fact{asksTwo}, answers(0, " ", "\n"), Invalid, "empty"},
		"beyond":                {[]fact{asksTwo}, answers(2, "x"), NotFound, "que_1/2"},
		"before":                {[]fact{asksTwo}, answers(-1, "x"), NotFound, "que_1/-1"},
		"never asked":           {nil, answers(0, "x"), NotFound, "no question"},
		"answered before":       {[]fact{asksTwo, first}, answers(0, "b"), Conflict, "answered already, by user:alice"},
		"after a rejection":     {[]fact{asksTwo, rejected}, answers(1, "yes"), Conflict, "rejected by user:alice"},
		"expired":               {[]fact{asksTwo, {data: events.QuestionExpired{Question: "que_1", Reason: "gone"}}}, answers(0, "a"), Conflict, "expired: gone"},
		"answered in OpenCode":  {[]fact{asksTwo, settled(events.QuestionReplied)}, answers(0, "a"), Conflict, "answered in OpenCode"},
		"rejected in OpenCode":  {[]fact{asksTwo, settled(events.QuestionRejected)}, answers(0, "a"), Conflict, "answered in OpenCode"},
		"OpenCode's own echoes": {[]fact{asksTwo, rejected, settled(events.QuestionRejected)}, answers(1, "a"), Conflict, "rejected by user:alice"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := newQuestions()
			given(t, s, c.given...)
			d, _, err := s.answer(c.when)
			is.Equal(refusal(t, err), c.then)
			if err != nil {
				expect.Contains(t, err.Error(), c.says)
				is.Equal(d, nil)
				return
			}
			is.Equal(d, events.QuestionAnswered{Question: "que_1", Index: c.when.Index, Answers: c.when.Answers, Rejected: c.when.Rejected})
		})
	}
}

func TestQuestionsExpireUnlessTheyAreOverOrHaveTheirAnswers(t *testing.T) {
	answered := func(index int) fact {
		return fact{by: alice, data: events.QuestionAnswered{Question: "que_1", Index: index, Answers: []string{"a"}}}
	}
	for name, c := range map[string]struct {
		given   []fact
		expires bool
	}{
		"asked":             {[]fact{asksTwo}, true},
		"interrupted":       {[]fact{asksTwo, {data: events.QuestionInterrupted{Question: "que_1"}}}, true},
		"half answered":     {[]fact{asksTwo, answered(1)}, true},
		"in a deleted chat": {[]fact{{by: alice, data: events.ChatCreated{Title: "t"}}, asksTwo, {by: alice, data: events.Deleted{}}}, true},
		"answered":          {[]fact{asksTwo, answered(1), answered(0)}, false},
		"rejected":          {[]fact{asksTwo, {by: alice, data: events.QuestionAnswered{Question: "que_1", Rejected: true}}}, false},
		"expired":           {[]fact{asksTwo, {data: events.QuestionExpired{Question: "que_1", Reason: "gone"}}}, false},
		"answered there":    {[]fact{asksTwo, openCode(events.QuestionReplied, map[string]string{"sessionID": "ses_1", "requestID": "que_1"})}, false},
		"never asked":       {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := newQuestions()
			given(t, s, c.given...)
			d := s.expire(ExpireQuestion{Chat: "c1", Question: "que_1", Reason: "asked again as que_2"})
			is.Equal(d != nil, c.expires)
			if d != nil {
				is.Equal(d, events.QuestionExpired{Question: "que_1", Reason: "asked again as que_2"})
			}
		})
	}
}

func TestFirstAnswerWinsWhenManyAnswerAtOnce(t *testing.T) {
	is := is.New(t)
	h := open(t)
	const clients = 8
	refused := make(chan error, clients)
	for n := range clients {
		go func() {
			_, err := h.AnswerQuestion(t.Context(), AnswerQuestion{Command: Command{Actor: alice}, Chat: "c1", Question: "que_1", Answers: []string{string(rune('a' + n))}})
			refused <- err
		}()
	}
	won := 0
	for range clients {
		if err := <-refused; err == nil {
			won++
		} else {
			is.Equal(refusal(t, err), Conflict)
			expect.Contains(t, err.Error(), "answered already, by user:alice")
		}
	}
	is.Equal(won, 1)
	_, all := history(t, h.Log, "c1")
	is.Equal(len(of[events.QuestionAnswered](all)), 1)
}
