package api_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/projections"
)

type object = map[string]any

func (s *system) batch(t testing.TB, token string, requests ...object) (int, []any, object) {
	t.Helper()
	status, answer := s.raw(t, token, "POST", "/api/batch", object{"requests": requests})
	var list []any
	var refused object
	if status == 200 {
		check(t, json.Unmarshal(answer, &list))
	} else {
		check(t, json.Unmarshal(answer, &refused))
	}
	return status, list, refused
}

func TestABatchHappensWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ada := s.user(t, "ada", account.User)
	_, bob := s.user(t, "bob", account.User)
	theirs := s.chat(t, bob, "bob's")

	status, list, _ := s.batch(t, ada,
		object{"method": "POST", "url": "/api/collections/chats/records", "body": object{"id": "chat00000000001", "title": "one"}},
		object{"method": "POST", "url": "/api/collections/messages/records", "body": object{"chat": "chat00000000001", "role": "user", "parts": []object{{"type": "text", "text": "x"}}}},
		object{"method": "PATCH", "url": "/api/collections/chats/records/chat00000000001?fields=title", "body": object{"title": "two"}},
		object{"method": "POST", "url": "/api/collections/chats/records", "body": object{"id": "chat00000000002", "title": "gone"}},
		object{"method": "DELETE", "url": "/api/collections/chats/records/chat00000000002"},
		object{"method": "PUT", "url": "/api/collections/chats/records", "body": object{"id": "chat00000000003", "title": "put"}},
	)
	is.Equal(status, 200)
	is.Equal(len(list), 6)
	is.Equal(list[2].(object)["body"], object{"title": "two"})
	is.Equal(list[3].(object)["body"], nil) // it is gone again
	is.Equal(list[4].(object)["status"], 204.0)

	for name, bad := range map[string]object{
		"somebody else's chat":   {"method": "PATCH", "url": "/api/collections/chats/records/" + theirs, "body": object{"title": "mine"}},
		"a permission":           {"method": "POST", "url": "/api/collections/permissions/records", "body": object{"chat": "chat0000000000x", "permission": "bash", "metadata": object{"command": "git status"}}},
		"another's rule":         {"method": "POST", "url": "/api/collections/tool_permissions/records", "body": object{"tool": "bash", "pattern": "*", "action": "allow"}},
		"a url elsewhere":        {"method": "POST", "url": "http://evil.example/api/collections/chats/records"},
		"an account":             {"method": "POST", "url": "/api/collections/users/records", "body": object{"email": "x@example.org"}},
		"a method of its own":    {"method": "GET", "url": "/api/collections/chats/records"},
		"fields that make sense": {"method": "POST", "url": "/api/collections/chats/records?fields=title:nonsense", "body": object{"title": "x"}},
	} {
		status, _, refused := s.batch(t, ada,
			object{"method": "POST", "url": "/api/collections/chats/records", "body": object{"id": "chat0000000000x", "title": "never"}}, bad)
		is.Equal(status, 400) // name
		requests := refused["data"].(object)["requests"].(object)
		is.Equal(requests["1"].(object)["code"], "batch_request_failed")
		status, _ = s.call(t, ada, "GET", "/api/collections/chats/records/chat0000000000x", nil)
		if status != 404 {
			t.Errorf("with %s in it, the rest of the batch happened", name)
		}
	}
}

func TestNothingIsWrittenWhenTheAnswerCouldNotBe(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ada := s.user(t, "ada", account.User)
	status, _ := s.call(t, ada, "POST", "/api/collections/chats/records?fields=title:nonsense", object{"id": "chat00000000001", "title": "x"})
	is.Equal(status, 400)
	status, _ = s.call(t, ada, "GET", "/api/collections/chats/records/chat00000000001", nil)
	is.Equal(status, 404)
}

func TestAnOldTokenDoesNotKeepAnybodyFromLoggingIn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, token := s.user(t, "ada", account.User)
	_, list := s.raw(t, token, "GET", "/api/pocketcoder/sessions", nil)
	var sessions []struct{ ID string }
	is.NoErr(json.Unmarshal(list, &sessions))
	status, _ := s.raw(t, token, "DELETE", "/api/pocketcoder/sessions/"+sessions[0].ID, nil)
	is.Equal(status, 204)
	status, _ = s.call(t, token, "GET", "/api/collections/chats/records", nil)
	is.Equal(status, 401)
	status, _ = s.call(t, token, "GET", "/api/health", nil)
	is.Equal(status, 200)
	status, _ = s.call(t, token, "POST", "/api/collections/users/auth-with-password", object{"identity": "ada@example.org", "password": password})
	is.Equal(status, 200)
}

func TestPeopleChangeTheirOwnAccountAndNoMore(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	id, ada := s.user(t, "ada", account.User)
	at := "/api/collections/users/records/" + id
	for _, bad := range []object{
		{"role": "admin"}, {"disabled": true}, {"password": "another good password"},
		{"password": "another good password", "oldPassword": "wrong"}, {"password": "another good password", "passwordConfirm": "x", "oldPassword": password},
		{"password": "another good password", "oldPassword": password, "name": "both"}, {"email": "no email"},
	} {
		status, answer := s.call(t, ada, "PATCH", at, bad)
		is.True(status == 400 || status == 403) // bad
		is.True(answer["data"] != nil)
	}
	_, now := s.call(t, ada, "GET", at, nil)
	is.Equal([]any{now["role"], now["name"], now["email"], now["disabled"]}, []any{"user", "ada", "ada@example.org", false})
	_, other := s.user(t, "ada2", account.User)
	status, _ := s.call(t, other, "PATCH", at, object{"name": "mine"})
	is.Equal(status, 404)
	status, _ = s.call(t, ada, "PATCH", at, object{"password": "another good password", "oldPassword": password, "passwordConfirm": "another good password"})
	is.Equal(status, 200)
	status, _ = s.call(t, ada, "GET", at, nil) // the session that changed it stays
	is.Equal(status, 200)
}

func TestEachOfTheQuestionsAskedTogetherHasItsOwnAnswer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ada := s.user(t, "ada", account.User)
	chat := s.chat(t, ada, "x")
	s.said(t, chat, "question.asked", `{"id":"que_1","sessionID":"ses_1","questions":[{"question":"a?","header":"h","options":[]},
		{"question":"b?","header":"h","multiple":true,"options":[{"label":"A","description":""},{"label":"B","description":""}]}],"tool":{"messageID":"m","callID":"c"}}`)
	second := "/api/collections/questions/records/" + projections.RecordID("que_1/1")
	status, answered := s.call(t, ada, "PATCH", second, object{"status": "replied", "reply": `["A","B"]`})
	is.Equal(status, 200)
	is.Equal([]any{answered["question"], answered["reply"], answered["status"]}, []any{"b?", "A, B", "replied"})
	_, first := s.call(t, ada, "GET", "/api/collections/questions/records/"+projections.RecordID("que_1/0"), nil)
	is.Equal(first["status"], "asked")
}

// Clients make ids: the first record with one keeps it, whoever wants it next.
func TestAnIDIsThatOfTheFirstRecordThatHadIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ada := s.user(t, "ada", account.User)
	_, bob := s.user(t, "bob", account.User)
	_, agent := s.user(t, "poco", account.Agent)
	mine, theirs := s.chat(t, ada, "ada's"), s.chat(t, bob, "bob's")
	for _, one := range []struct {
		collection    string
		first, second string
		fields        object
	}{
		{"messages", ada, bob, object{"id": "message00000001", "role": "user", "parts": []object{{"type": "text", "text": "hello"}}}},
		{"permissions", agent, agent, object{"id": "permission00001", "permission": "bash", "metadata": object{"command": "ls"}}},
	} {
		fields := maps.Clone(one.fields)
		fields["chat"] = mine
		var before object
		for range 2 { // once more is no other
			status, made := s.call(t, one.first, "POST", recordsOf(one.collection), fields)
			is.Equal(status, 200)
			is.Equal(made["id"], fields["id"])
			is.True(before == nil || before["created"] == made["created"])
			before = made
		}
		fields["chat"] = theirs
		status, refused := s.call(t, one.second, "POST", recordsOf(one.collection), fields)
		is.Equal(status, 400)
		is.Equal(refused["data"].(object)["id"].(object)["code"], "validation_not_unique")
		_, after := s.call(t, ada, "GET", recordsOf(one.collection)+"/"+fields["id"].(string), nil)
		is.Equal(after["chat"], mine)
	}
}
