package realtime_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestMain(m *testing.M) { expect.Run(m) }

func TestWireFormatIsPocketBases(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	f := s.Connect(t)
	is.Equal(f.First, "id:"+f.ID+"\nevent:PB_CONNECT\ndata:{\"clientId\":\""+f.ID+"\"}\n\n")
	is.True(len(f.ID) >= 40)
	f.Follow(t, ann, "chats/*")
	chat := s.Chat(t, ann, "one")
	_, record := s.Raw(t, ann, "GET", "/api/collections/chats/records/"+chat, nil)
	is.Equal(f.Next(t).Raw, "id:"+f.ID+"\nevent:chats/*\ndata:{\"action\":\"create\",\"record\":"+string(record)+"}\n\n")
	s.Rename(t, ann, chat, "two")
	is.Equal(f.Next(t).String(), "chats/* update two")
	s.Remove(t, ann, chat)
	gone := f.Next(t)
	is.Equal(gone.String(), "chats/* delete two") // with the record as it was
	is.Equal(gone.Data.Record["id"], chat)
}

func TestEventsRepeatTheTopicByteForByte(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	user, ann := s.User(t, "ann", account.User)
	chat := s.Chat(t, ann, "one")
	other := s.Chat(t, ann, "other")
	options := func(query string) string { return "?options=" + url.QueryEscape(`{"query":`+query+`}`) }
	topics := []string{
		"chats", "chats/*", "chats/" + chat, "chats/*" + options(`{"filter":"title ~ 't%w'"}`),
		"chats/*" + options(`{"fields":"id,title"}`),
		"chats/" + chat + options(`{"expand":"user","fields":"title,expand.user.email"}`),
		`chats/*?options=%7B+%22headers%22:{"X-Odd":1},"query":{"other":true}}&more=é ü`, "chats/*?", "chats/*?options=no",
		"custom topic: é/?x",
	}
	f := s.Connect(t).Follow(t, ann, append(topics, "", "chats/*")...)
	s.Rename(t, ann, chat, "tow")
	got := map[string]webtest.Frame{}
	for range topics[:len(topics)-1] {
		next := f.Next(t)
		got[next.Event] = next
	}
	for _, topic := range topics[:len(topics)-1] {
		is.Equal(got[topic].Event, topic)
		is.Equal(got[topic].Data.Record["title"], "tow")
	}
	is.Equal(got[topics[4]].Data.Record, map[string]any{"id": chat, "title": "tow"})
	is.Equal(got[topics[5]].Data.Record, map[string]any{"title": "tow",
		"expand": map[string]any{"user": map[string]any{"email": "ann@example.org"}}})
	is.Equal(got["chats/*"].Data.Record["user"], user)
	s.Rename(t, ann, other, "no match")
	for range 6 { // all except those of the other chat and of the filter
		next := f.Next(t)
		is.Equal(next.Data.Record["title"], "no match")
		is.True(next.Event != topics[3])
	}
}

func TestAliasesAreTopics(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	f := s.Connect(t).Follow(t, ann, "cron_jobs/*", "schedules/*")
	status, answer := s.Call(t, ann, "POST", "/api/collections/cron_jobs/records", map[string]any{
		"name": "nightly", "cron_expression": "0 3 * * *", "prompt": "tidy up", "session_mode": "new"})
	is.Equal(status, http.StatusOK)
	names := map[any]any{}
	for range 2 {
		got := f.Next(t)
		is.Equal(got.Data.Record["id"], answer["id"])
		names[got.Event] = got.Data.Record["collectionName"]
	}
	is.Equal(names, map[any]any{"cron_jobs/*": "cron_jobs", "schedules/*": "schedules"})
}

func TestEventsFollowTheAccessRules(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	_, bob := s.User(t, "bob", account.User)
	_, root := s.User(t, "root", account.Admin)
	annsChat, bobsChat := s.Chat(t, ann, "ann's"), s.Chat(t, bob, "bob's")
	topics := []string{"chats/*", "chats/" + annsChat, "chats/" + bobsChat, "messages/*", "permissions/*", "users/*"}
	a, b, all, guest := s.Connect(t).Follow(t, ann, topics...), s.Connect(t).Follow(t, bob, topics...),
		s.Connect(t).Follow(t, root, "chats/*"), s.Connect(t).Follow(t, "", topics...)
	s.AppendRequest(t, annsChat, "per_1")
	s.Rename(t, ann, annsChat, "secret")
	s.Rename(t, bob, bobsChat, "end")
	is.Equal(b.Until(t, "title", "end"), nil)
	is.Equal(all.Until(t, "title", "end"), []string{"chats/* update secret"})
	seen := map[string]bool{}
	for len(seen) < 3 {
		if topic := a.Next(t).Event; topic != "users/*" { // ann may still see that her own account was created
			seen[topic] = true
		}
	}
	is.Equal(seen, map[string]bool{"chats/*": true, "chats/" + annsChat: true, "permissions/*": true})
	is.Equal(len(guest.Frames), 0)
	guest.Follow(t, s.Login(t, "bob"), "chats/*") // a guest may log in
	s.Rename(t, bob, bobsChat, "bob again")
	is.Equal(guest.Next(t).String(), "chats/* update bob again")
}

func TestInvalidSubscriptionsAreRefused(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	_, bob := s.User(t, "bob", account.User)
	f := s.Connect(t).Follow(t, ann, "chats/*")
	post := func(token string, body any) (int, string) {
		status, answer := s.Raw(t, token, "POST", "/api/realtime", body)
		return status, string(answer)
	}
	long := strings.Repeat("x", 2501)
	for name, c := range map[string]struct {
		token  string
		body   any
		status int
		want   string
	}{
		"no client":       {ann, map[string]any{"subscriptions": []string{}}, 400, `"clientId"`},
		"unknown client":  {ann, map[string]any{"clientId": "unknown"}, 404, "Missing or invalid client id."},
		"other account":   {bob, map[string]any{"clientId": f.ID}, 403, "The current and the previous request authorization don't match."},
		"guest":           {"", map[string]any{"clientId": f.ID}, 403, "The current and the previous request authorization don't match."},
		"too many":        {ann, map[string]any{"clientId": f.ID, "subscriptions": make([]string, 1001)}, 400, `"subscriptions"`},
		"too long":        {ann, map[string]any{"clientId": f.ID, "subscriptions": []string{long}}, 400, `"subscriptions"`},
		"several lines":   {ann, map[string]any{"clientId": f.ID, "subscriptions": []string{"chats/*\nevent:x"}}, 400, `"subscriptions"`},
		"a filter":        {ann, map[string]any{"clientId": f.ID, "subscriptions": []string{`chats/*?options={"query":{"filter":"nothing = 1"}}`}}, 400, `"filter"`},
		"a type":          {ann, `{"clientId":1}`, 400, `"clientId"`},
		"an unknown name": {ann, `{"clientId":"x","other":1}`, 400, `"other"`},
		"no JSON":         {ann, `{`, 400, `"message"`},
	} {
		if status, answer := post(c.token, c.body); status != c.status || !strings.Contains(answer, c.want) {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	s.Chat(t, ann, "still followed")
	is.New(t).Equal(f.Next(t).String(), "chats/* create still followed")
}

func TestSubscribingReplacesTheEarlierTopics(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	one, two := s.Chat(t, ann, "one"), s.Chat(t, ann, "two")
	f := s.Connect(t).Follow(t, ann, "chats/"+one, "chats/"+two).Follow(t, ann, "chats/"+two)
	s.Rename(t, ann, one, "not told")
	s.Rename(t, ann, two, "told")
	is.Equal(f.Next(t).String(), "chats/"+two+" update told")
	f.Follow(t, ann).Follow(t, ann, "chats/"+one)
	s.Rename(t, ann, two, "not told")
	s.Rename(t, ann, one, "told again")
	is.Equal(f.Next(t).String(), "chats/"+one+" update told again")
}

func TestStreamEndsWhenTheSessionIsRevoked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	id, ann := s.User(t, "ann", account.User)
	other := s.Login(t, "ann")
	ends, stays := s.Connect(t).Follow(t, ann, "chats/*"), s.Connect(t).Follow(t, other, "chats/*")
	identity, err := s.Accounts.Check(ann)
	is.NoErr(err)
	is.NoErr(s.Accounts.Revoke(t.Context(), account.RevokeSession{Command: handlers.Command{Actor: "user:" + id},
		Account: id, Session: identity.Session}))
	ends.Ends(t)
	s.Chat(t, other, "after")
	is.Equal(stays.Next(t).String(), "chats/* create after")
}
