package web_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
	"pocketcoder/projections/store"
	"pocketcoder/web/webtest"
)

const threeQuestions = `{"id":"que_1","sessionID":"ses_1","questions":[
	{"question":"Colour?","header":"C","options":[{"label":"Red","description":"warm"},{"label":"Blue","description":"cold"}]},
	{"question":"Letters?","header":"L","multiple":true,"options":[{"label":"A","description":"first"},{"label":"B","description":""}]},
	{"question":"Now?","header":"N","custom":false,"options":[{"label":"Yes","description":""},{"label":"No","description":""}]}],
	"tool":{"messageID":"msg_1","callID":"call_1"}}`

func TestQuestionsShowEverythingNeededForAnAnswer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", account.User)
	chat := s.Chat(t, ada, "x")
	s.AppendOpenCode(t, chat, "question.asked", threeQuestions)
	questions := func() []any {
		t.Helper()
		status, page := s.Call(t, ada, "GET", webtest.RecordsPath("questions")+"?sort=index", nil)
		is.Equal(status, 200)
		return page["items"].([]any)
	}
	for i, want := range []webtest.Object{
		{"question": "Colour?", "header": "C", "choices": []any{"Red", "Blue"}, "descriptions": []any{"warm", "cold"}, "multiple": false, "custom": true},
		{"question": "Letters?", "header": "L", "choices": []any{"A", "B"}, "descriptions": []any{"first", ""}, "multiple": true, "custom": true},
		{"question": "Now?", "header": "N", "choices": []any{"Yes", "No"}, "descriptions": []any{"", ""}, "multiple": false, "custom": false},
	} {
		shown := questions()[i].(webtest.Object)
		for name, value := range want {
			is.Equal(shown[name], value) // name
		}
		is.Equal([]any{shown["status"], shown["interrupted"], shown["reason"], shown["message_id"]},
			[]any{"asked", false, "", "msg_1"})
	}
	s.Append(t, chat, events.QuestionInterrupted{Question: "que_1"})
	s.Append(t, chat, events.QuestionExpired{Question: "que_1", Reason: "asked again as que_2"})
	for _, q := range questions() {
		q := q.(webtest.Object)
		is.Equal([]any{q["status"], q["interrupted"], q["reason"]}, []any{"expired", true, "asked again as que_2"})
	}
}

func TestInvalidAnswersAreRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", account.User)
	s.AppendOpenCode(t, s.Chat(t, ada, "x"), "question.asked", threeQuestions)
	for _, c := range []struct {
		index, status, reply string
		field, want          string
	}{
		{"0", "replied", `["Red","Blue"]`, "reply", "takes one answer, got 2"},
		{"0", "replied", " \n", "reply", "the answer is empty"},
		{"0", "replied", "[]", "reply", "the answer is empty"},
		{"0", "replied", strings.Repeat("x", chat.MaxAnswer+1), "reply", "the limit is 32768"},
		{"1", "replied", `["A",""]`, "reply", "answer 2 of 2 is empty"},
		{"1", "replied", `["A","A"]`, "reply", "given twice"},
		{"2", "replied", "Maybe", "reply", "none of those"},
		{"0", "expired", "Red", "status", "Must be replied or rejected"},
	} {
		status, answer := s.Call(t, ada, "PATCH", webtest.RecordsPath("questions")+"/"+store.RecordID("que_1/"+c.index),
			webtest.Object{"status": c.status, "reply": c.reply})
		is.Equal(status, 400) // c
		at, ok := answer["data"].(webtest.Object)[c.field].(webtest.Object)
		is.True(ok)                                        // the field is named
		expect.Contains(t, at["message"].(string), c.want) // c
	}
	for index, reply := range map[string]string{"0": "Red and then Blue", "1": `["B","my own"]`, "2": "Yes"} {
		status, _ := s.Call(t, ada, "PATCH", webtest.RecordsPath("questions")+"/"+store.RecordID("que_1/"+index),
			webtest.Object{"status": "replied", "reply": reply})
		is.Equal(status, 200)
	}
	status, answer := s.Call(t, ada, "PATCH", webtest.RecordsPath("questions")+"/"+store.RecordID("que_1/0"),
		webtest.Object{"status": "replied", "reply": "Blue"})
	is.Equal(status, 400)
	is.Equal(answer["data"].(webtest.Object)["status"].(webtest.Object)["code"], "validation_conflict")
}
