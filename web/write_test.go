package web_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
	"pocketcoder/projections/store"
	"pocketcoder/web/webtest"
)

func TestBatchIsAtomic(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", account.User)
	_, bob := s.User(t, "bob", account.User)
	bobs := s.Chat(t, bob, "bob's")

	status, list, _ := s.Batch(t, ada,
		webtest.Object{"method": "POST", "url": "/api/collections/chats/records",
			"body": webtest.Object{"id": "chat00000000001", "title": "one"}},
		webtest.Object{"method": "POST", "url": "/api/collections/messages/records",
			"body": webtest.Object{"chat": "chat00000000001", "role": "user", "parts": []webtest.Object{{"type": "text", "text": "x"}}}},
		webtest.Object{"method": "PATCH", "url": "/api/collections/chats/records/chat00000000001?fields=title",
			"body": webtest.Object{"title": "two"}},
		webtest.Object{"method": "POST", "url": "/api/collections/chats/records",
			"body": webtest.Object{"id": "chat00000000002", "title": "gone"}},
		webtest.Object{"method": "DELETE", "url": "/api/collections/chats/records/chat00000000002"},
		webtest.Object{"method": "PUT", "url": "/api/collections/chats/records",
			"body": webtest.Object{"id": "chat00000000003", "title": "put"}},
	)
	is.Equal(status, 200)
	is.Equal(len(list), 6)
	is.Equal(list[2].(webtest.Object)["body"], webtest.Object{"title": "two"})
	is.Equal(list[3].(webtest.Object)["body"], nil) // it does not exist
	is.Equal(list[4].(webtest.Object)["status"], 204.0)

	for name, bad := range map[string]webtest.Object{
		"the chat of another user": {"method": "PATCH", "url": "/api/collections/chats/records/" + bobs, "body": webtest.Object{"title": "mine"}},
		"a permission":             {"method": "POST", "url": "/api/collections/permissions/records", "body": webtest.Object{"chat": "chat0000000000x", "permission": "bash", "metadata": webtest.Object{"command": "git status"}}},
		"another's rule":           {"method": "POST", "url": "/api/collections/tool_permissions/records", "body": webtest.Object{"tool": "bash", "pattern": "*", "action": "allow"}},
		"a url elsewhere":          {"method": "POST", "url": "http://evil.example/api/collections/chats/records"},
		"an account":               {"method": "POST", "url": "/api/collections/users/records", "body": webtest.Object{"email": "x@example.org"}},
		"a method of its own":      {"method": "GET", "url": "/api/collections/chats/records"},
		"fields that make sense":   {"method": "POST", "url": "/api/collections/chats/records?fields=title:nonsense", "body": webtest.Object{"title": "x"}},
	} {
		status, _, refused := s.Batch(t, ada,
			webtest.Object{"method": "POST", "url": "/api/collections/chats/records",
				"body": webtest.Object{"id": "chat0000000000x", "title": "never"}}, bad)
		is.Equal(status, 400) // name
		requests := refused["data"].(webtest.Object)["requests"].(webtest.Object)
		is.Equal(requests["1"].(webtest.Object)["code"], "batch_request_failed")
		status, _ = s.Call(t, ada, "GET", "/api/collections/chats/records/chat0000000000x", nil)
		if status != 404 {
			t.Errorf("with %s in it, the rest of the batch happened", name)
		}
	}
}

// The former owner repeats the creation. That changes nothing and gives no access.
func TestBatchDoesNotReturnAChatToItsFormerOwner(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, root := s.User(t, "root", account.Admin)
	ada, adas := s.User(t, "ada", account.User)
	_, bob := s.User(t, "bob", account.User)
	const chats, id = "/api/collections/chats/records", "chat00000000001"
	create := webtest.Object{"method": "POST", "url": chats, "body": webtest.Object{"id": id, "title": "plan"}}
	status, _, _ := s.Batch(t, bob, create)
	is.Equal(status, 200)
	status, _ = s.Call(t, root, "PATCH", chats+"/"+id, webtest.Object{"user": ada})
	is.Equal(status, 200)
	for _, second := range []webtest.Object{
		{"method": "POST", "url": "/api/collections/messages/records", "body": webtest.Object{"chat": id, "role": "user", "parts": []webtest.Object{{"type": "text", "text": "x"}}}},
		{"method": "PATCH", "url": chats + "/" + id, "body": webtest.Object{"title": "bob's"}},
		{"method": "DELETE", "url": chats + "/" + id},
	} {
		status, _, _ := s.Batch(t, bob, create, second)
		is.Equal(status, 400)
	}
	status, chat := s.Call(t, adas, "GET", chats+"/"+id, nil)
	is.Equal([]any{status, chat["title"]}, []any{200, "plan"})
}

func TestBatchCannotCreateOneIDInTwoChats(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", account.User)
	message := func(chat string) webtest.Object {
		return webtest.Object{"method": "POST", "url": "/api/collections/messages/records", "body": webtest.Object{
			"id": "message00000001", "chat": chat, "role": "user", "parts": []webtest.Object{{"type": "text", "text": "hello"}},
		}}
	}
	first, second := s.Chat(t, ada, "first"), s.Chat(t, ada, "second")
	status, _, refused := s.Batch(t, ada, message(first), message(second))
	is.Equal(status, 400)
	request := refused["data"].(webtest.Object)["requests"].(webtest.Object)["1"].(webtest.Object)
	is.Equal(request["response"].(webtest.Object)["data"].(webtest.Object)["id"].(webtest.Object)["code"],
		"validation_not_unique")
	// a repetition changes nothing, and nothing was stored before
	status, _, _ = s.Batch(t, ada, message(second), message(second))
	is.Equal(status, 200)
}

// An agent's answer has its prompt of 1 MiB, so 32 MiB hold those of 32 requests.
func TestBatchAnswerIsLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, root := s.User(t, "root", account.Admin)
	status, prompt := s.Call(t, root, "POST", webtest.RecordsPath("ai_prompts"),
		webtest.Object{"name": "long", "body": strings.Repeat("x", record.MaxRecord-1000)})
	is.Equal(status, 200)
	status, agent := s.Call(t, root, "POST", webtest.RecordsPath("ai_agents"),
		webtest.Object{"name": "Reviewer", "prompt": prompt["id"]})
	is.Equal(status, 200)
	request := webtest.Object{"method": "PATCH", "body": webtest.Object{"description": "reviews"},
		"url": webtest.RecordsPath("ai_agents") + "/" + agent["id"].(string) + "?expand=prompt"}
	status, list, _ := s.Batch(t, root, slices.Repeat([]webtest.Object{request}, 35)...)
	is.Equal(status, 200)
	is.Equal(len(list), 35)
	for i, answer := range list {
		is.Equal(answer.(webtest.Object)["status"], 200.0)
		is.Equal(answer.(webtest.Object)["body"] != nil, i < 32)
	}
}

func TestInvalidQueryPreventsTheWrite(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", account.User)
	status, _ := s.Call(t, ada, "POST", "/api/collections/chats/records?fields=title:nonsense",
		webtest.Object{"id": "chat00000000001", "title": "x"})
	is.Equal(status, 400)
	status, _ = s.Call(t, ada, "GET", "/api/collections/chats/records/chat00000000001", nil)
	is.Equal(status, 404)
}

func TestLoginIgnoresAnExpiredToken(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	_, list := s.Raw(t, token, "GET", "/api/pocketcoder/sessions", nil)
	var sessions []struct{ ID string }
	is.NoErr(json.Unmarshal(list, &sessions))
	status, _ := s.Raw(t, token, "DELETE", "/api/pocketcoder/sessions/"+sessions[0].ID, nil)
	is.Equal(status, 204)
	status, _ = s.Call(t, token, "GET", "/api/collections/chats/records", nil)
	is.Equal(status, 401)
	status, _ = s.Call(t, token, "GET", "/api/health", nil)
	is.Equal(status, 200)
	status, _ = s.Call(t, token, "POST", "/api/collections/users/auth-with-password",
		webtest.Object{"identity": "ada@example.org", "password": webtest.Password})
	is.Equal(status, 200)
}

func TestUsersChangeOnlyTheirOwnAccount(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	id, ada := s.User(t, "ada", account.User)
	at := "/api/collections/users/records/" + id
	for _, bad := range []webtest.Object{
		{"role": "admin"}, {"disabled": true}, {"password": "another good password"},
		{"password": "another good password", "oldPassword": "wrong"}, {"password": "another good password", "passwordConfirm": "x", "oldPassword": webtest.Password},
		{"password": "another good password", "oldPassword": webtest.Password, "name": "both"}, {"email": "no email"},
	} {
		status, answer := s.Call(t, ada, "PATCH", at, bad)
		is.True(status == 400 || status == 403) // bad
		is.True(answer["data"] != nil)
	}
	_, now := s.Call(t, ada, "GET", at, nil)
	is.Equal([]any{now["role"], now["name"], now["email"], now["disabled"]},
		[]any{"user", "ada", "ada@example.org", false})
	_, other := s.User(t, "ada2", account.User)
	status, _ := s.Call(t, other, "PATCH", at, webtest.Object{"name": "mine"})
	is.Equal(status, 404)
	status, _ = s.Call(t, ada, "PATCH", at, webtest.Object{"password": "another good password",
		"oldPassword": webtest.Password, "passwordConfirm": "another good password"})
	is.Equal(status, 200)
	status, _ = s.Call(t, ada, "GET", at, nil) // the session that changed it stays
	is.Equal(status, 200)
}

func TestQuestionsAskedTogetherAreAnsweredSeparately(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", account.User)
	chat := s.Chat(t, ada, "x")
	s.AppendOpenCode(t, chat, "question.asked", `{"id":"que_1","sessionID":"ses_1","questions":[{"question":"a?","header":"h","options":[]},
		{"question":"b?","header":"h","multiple":true,"options":[{"label":"A","description":""},{"label":"B","description":""}]}],"tool":{"messageID":"m","callID":"c"}}`)
	second := "/api/collections/questions/records/" + store.RecordID("que_1/1")
	status, answered := s.Call(t, ada, "PATCH", second, webtest.Object{"status": "replied", "reply": `["A","B"]`})
	is.Equal(status, 200)
	is.Equal([]any{answered["question"], answered["reply"], answered["status"]}, []any{"b?", "A, B", "replied"})
	_, first := s.Call(t, ada, "GET", "/api/collections/questions/records/"+store.RecordID("que_1/0"), nil)
	is.Equal(first["status"], "asked")
}

// Clients choose ids. The first record with an id keeps it.
func TestTakenIDIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", account.User)
	_, bob := s.User(t, "bob", account.User)
	_, agent := s.User(t, "poco", account.Agent)
	adas, bobs := s.Chat(t, ada, "ada's"), s.Chat(t, bob, "bob's")
	for _, one := range []struct {
		collection    string
		first, second string
		fields        webtest.Object
	}{
		{"messages", ada, bob, webtest.Object{"id": "message00000001", "role": "user", "parts": []webtest.Object{{"type": "text", "text": "hello"}}}},
		{"permissions", agent, agent, webtest.Object{"id": "permission00001", "permission": "bash", "metadata": webtest.Object{"command": "ls"}}},
	} {
		fields := maps.Clone(one.fields)
		fields["chat"] = adas
		var before webtest.Object
		for range 2 { // a repeated create is no second record
			status, made := s.Call(t, one.first, "POST", webtest.RecordsPath(one.collection), fields)
			is.Equal(status, 200)
			is.Equal(made["id"], fields["id"])
			is.True(before == nil || before["created"] == made["created"])
			before = made
		}
		fields["chat"] = bobs
		status, refused := s.Call(t, one.second, "POST", webtest.RecordsPath(one.collection), fields)
		is.Equal(status, 400)
		is.Equal(refused["data"].(webtest.Object)["id"].(webtest.Object)["code"], "validation_not_unique")
		_, after := s.Call(t, ada, "GET", webtest.RecordsPath(one.collection)+"/"+fields["id"].(string), nil)
		is.Equal(after["chat"], adas)
	}
}
