package web_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/web/webtest"
)

func TestClientsChangeTheQueueOfAChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", account.User)
	_, bob := s.User(t, "bob", account.User)
	_, agent := s.User(t, "poco", "agent")
	chat := s.Chat(t, ada, "one")
	all := webtest.RecordsPath("messages")
	say := func(text string) []webtest.Object { return []webtest.Object{{"type": "text", "text": text}} }
	for _, id := range []string{"message000000_a", "message000000_b", "message000000_c"} {
		status, m := s.Call(t, ada, "POST", all, webtest.Object{"id": id, "chat": chat, "role": "user",
			"parts": say(id[14:])})
		is.Equal([]any{status, m["delivery"]}, []any{200, "queue"})
	}
	waiting := func() (texts string) {
		_, list := s.Call(t, ada, "GET", all+"?sort=position&filter="+webtest.Escape(`user_message_status = "pending"`), nil)
		for _, item := range list["items"].([]any) {
			m := item.(webtest.Object)
			texts += m["parts"].([]any)[0].(webtest.Object)["text"].(string)
			if m["delivery"] == "steer" {
				texts += "!"
			}
		}
		return texts
	}
	patch := func(token, id string, fields webtest.Object) (int, any) {
		status, answer := s.Call(t, token, "PATCH", all+"/message000000_"+id, fields)
		return status, answer["message"]
	}
	for _, step := range []struct {
		id     string
		fields webtest.Object
		want   string
	}{
		{"b", webtest.Object{"before": "message000000_a"}, "bac"},
		{"b", webtest.Object{"before": ""}, "acb"},
		{"c", webtest.Object{"parts": say("C")}, "aCb"},
		{"b", webtest.Object{"delivery": "steer"}, "b!aC"},
		{"a", webtest.Object{"parts": say("A"), "before": "", "delivery": "queue"}, "b!CA"},
	} {
		status, _ := patch(ada, step.id, step.fields)
		is.Equal(status, 200)
		is.Equal(waiting(), step.want)
	}
	_, shown := s.Call(t, ada, "GET", all+"/message000000_c", nil)
	status, _ := patch(ada, "c", shown) // as a client sends back what it was shown
	is.Equal(status, 200)
	is.Equal(waiting(), "b!CA")
	for _, token := range []string{bob, agent} {
		status, _ := patch(token, "a", webtest.Object{"parts": say("mine")})
		is.Equal(status, 404)
		status, _ = s.Call(t, token, "DELETE", all+"/message000000_a", nil)
		is.Equal(status, 404)
	}
	status, _ = s.Call(t, ada, "DELETE", all+"/message000000_a", nil)
	is.Equal(status, 204)
	is.Equal(waiting(), "b!C")
	status, _ = s.Call(t, ada, "POST", all, webtest.Object{"id": "message000000_a", "chat": chat, "role": "user",
		"parts": say("a")})
	is.Equal(status, 400) // it was deleted

	s.Append(t, chat, events.MessageSending{Message: "message000000_c", Session: "ses_1", EngineMessage: "msg_1",
		EngineParts: []string{"prt_1"}})
	for _, fields := range []webtest.Object{{"parts": say("late")}, {"before": ""}, {"delivery": "steer"}} {
		status, message := patch(ada, "c", fields)
		is.Equal([]any{status, message}, []any{400, "This message was sent already. It can no longer be changed."})
	}
	status, late := s.Call(t, ada, "DELETE", all+"/message000000_c", nil)
	is.Equal([]any{status, late["message"]}, []any{400, "This message was sent already. It can no longer be changed."})
	status, _ = patch(ada, "c", webtest.Object{"parts": say("C")}) // a repeated write
	is.Equal(status, 200)
	status, _ = patch(ada, "b", webtest.Object{"delivery": "soon"})
	is.Equal(status, 400)
	status, _ = s.Call(t, ada, "POST", all, webtest.Object{"chat": chat, "role": "user", "parts": say("x"),
		"before": "message000000_b"})
	is.Equal(status, 400)
}
