package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
)

func TestRealtimeIsPocketBasesOnTheWire(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	f := s.connect(t)
	is.Equal(f.first, "id:"+f.id+"\nevent:PB_CONNECT\ndata:{\"clientId\":\""+f.id+"\"}\n\n")
	is.True(len(f.id) >= 40)
	f.follow(t, ann, "chats/*")
	chat := s.chat(t, ann, "one")
	_, record := s.raw(t, ann, "GET", "/api/collections/chats/records/"+chat, nil)
	is.Equal(f.next(t).raw, "id:"+f.id+"\nevent:chats/*\ndata:{\"action\":\"create\",\"record\":"+string(record)+"}\n\n")
	s.rename(t, ann, chat, "two")
	is.Equal(f.next(t).String(), "chats/* update two")
	s.remove(t, ann, chat)
	gone := f.next(t)
	is.Equal(gone.String(), "chats/* delete two") // with the record as it was
	is.Equal(gone.data.Record["id"], chat)
}

func TestTopicsComeBackByteForByte(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	user, ann := s.user(t, "ann", account.User)
	chat := s.chat(t, ann, "one")
	other := s.chat(t, ann, "other")
	options := func(query string) string { return "?options=" + url.QueryEscape(`{"query":`+query+`}`) }
	topics := []string{
		"chats", "chats/*", "chats/" + chat, "chats/*" + options(`{"filter":"title ~ 't%w'"}`), "chats/*" + options(`{"fields":"id,title"}`),
		"chats/" + chat + options(`{"expand":"user","fields":"title,expand.user.email"}`),
		`chats/*?options=%7B+%22headers%22:{"X-Odd":1},"query":{"other":true}}&more=é ü`, "chats/*?", "chats/*?options=no", "custom topic: é/?x",
	}
	f := s.connect(t).follow(t, ann, append(topics, "", "chats/*")...)
	s.rename(t, ann, chat, "tow")
	got := map[string]frame{}
	for range topics[:len(topics)-1] {
		next := f.next(t)
		got[next.event] = next
	}
	for _, topic := range topics[:len(topics)-1] {
		is.Equal(got[topic].event, topic)
		is.Equal(got[topic].data.Record["title"], "tow")
	}
	is.Equal(got[topics[4]].data.Record, map[string]any{"id": chat, "title": "tow"})
	is.Equal(got[topics[5]].data.Record, map[string]any{"title": "tow", "expand": map[string]any{"user": map[string]any{"email": "ann@example.org"}}})
	is.Equal(got["chats/*"].data.Record["user"], user)
	s.rename(t, ann, other, "no match")
	for range 6 { // all but the ones of the other chat, and the filter
		next := f.next(t)
		is.Equal(next.data.Record["title"], "no match")
		is.True(next.event != topics[3])
	}
}

func TestAliasesAreTopics(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	f := s.connect(t).follow(t, ann, "cron_jobs/*", "schedules/*")
	status, answer := s.call(t, ann, "POST", "/api/collections/cron_jobs/records", map[string]any{
		"name": "nightly", "cron_expression": "0 3 * * *", "prompt": "tidy up", "session_mode": "new"})
	is.Equal(status, http.StatusOK)
	names := map[any]any{}
	for range 2 {
		got := f.next(t)
		is.Equal(got.data.Record["id"], answer["id"])
		names[got.event] = got.data.Record["collectionName"]
	}
	is.Equal(names, map[any]any{"cron_jobs/*": "cron_jobs", "schedules/*": "schedules"})
}

func TestNobodySeesWhatIsNotTheirs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	_, bob := s.user(t, "bob", account.User)
	_, root := s.user(t, "root", account.Admin)
	annsChat, bobsChat := s.chat(t, ann, "ann's"), s.chat(t, bob, "bob's")
	topics := []string{"chats/*", "chats/" + annsChat, "chats/" + bobsChat, "messages/*", "permissions/*", "users/*"}
	a, b, all, guest := s.connect(t).follow(t, ann, topics...), s.connect(t).follow(t, bob, topics...), s.connect(t).follow(t, root, "chats/*"), s.connect(t).follow(t, "", topics...)
	s.asked(t, annsChat, "per_1")
	s.rename(t, ann, annsChat, "secret")
	s.rename(t, bob, bobsChat, "end")
	is.Equal(b.until(t, "title", "end"), nil)
	is.Equal(all.until(t, "title", "end"), []string{"chats/* update secret"})
	seen := map[string]bool{}
	for range 3 {
		seen[a.next(t).event] = true
	}
	is.Equal(seen, map[string]bool{"chats/*": true, "chats/" + annsChat: true, "permissions/*": true})
	is.Equal(len(guest.frames), 0)
	guest.follow(t, s.login(t, "bob"), "chats/*") // who was nobody may become somebody
	s.rename(t, bob, bobsChat, "bob again")
	is.Equal(guest.next(t).String(), "chats/* update bob again")
}

func TestSubscribingRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	_, bob := s.user(t, "bob", account.User)
	f := s.connect(t).follow(t, ann, "chats/*")
	post := func(token string, body any) (int, string) {
		status, answer := s.raw(t, token, "POST", "/api/realtime", body)
		return status, string(answer)
	}
	long := strings.Repeat("x", 2501)
	for name, c := range map[string]struct {
		token  string
		body   any
		status int
		says   string
	}{
		"no client":       {ann, map[string]any{"subscriptions": []string{}}, 400, `"clientId"`},
		"unknown client":  {ann, map[string]any{"clientId": "nobody"}, 404, "Missing or invalid client id."},
		"other account":   {bob, map[string]any{"clientId": f.id}, 403, "The current and the previous request authorization don't match."},
		"guest":           {"", map[string]any{"clientId": f.id}, 403, "The current and the previous request authorization don't match."},
		"too many":        {ann, map[string]any{"clientId": f.id, "subscriptions": make([]string, 1001)}, 400, `"subscriptions"`},
		"too long":        {ann, map[string]any{"clientId": f.id, "subscriptions": []string{long}}, 400, `"subscriptions"`},
		"several lines":   {ann, map[string]any{"clientId": f.id, "subscriptions": []string{"chats/*\nevent:x"}}, 400, `"subscriptions"`},
		"a filter":        {ann, map[string]any{"clientId": f.id, "subscriptions": []string{`chats/*?options={"query":{"filter":"nothing = 1"}}`}}, 400, `"filter"`},
		"a type":          {ann, `{"clientId":1}`, 400, `"clientId"`},
		"an unknown name": {ann, `{"clientId":"x","other":1}`, 400, `"other"`},
		"no JSON":         {ann, `{`, 400, `"message"`},
	} {
		if status, answer := post(c.token, c.body); status != c.status || !strings.Contains(answer, c.says) {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	s.chat(t, ann, "still followed")
	is.New(t).Equal(f.next(t).String(), "chats/* create still followed")
}

func TestSubscriptionsReplaceEachOther(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	one, two := s.chat(t, ann, "one"), s.chat(t, ann, "two")
	f := s.connect(t).follow(t, ann, "chats/"+one, "chats/"+two).follow(t, ann, "chats/"+two)
	s.rename(t, ann, one, "not told")
	s.rename(t, ann, two, "told")
	is.Equal(f.next(t).String(), "chats/"+two+" update told")
	f.follow(t, ann).follow(t, ann, "chats/"+one)
	s.rename(t, ann, two, "not told")
	s.rename(t, ann, one, "told again")
	is.Equal(f.next(t).String(), "chats/"+one+" update told again")
}

func TestARevokedSessionsStreamEnds(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	id, ann := s.user(t, "ann", account.User)
	other := s.login(t, "ann")
	ends, stays := s.connect(t).follow(t, ann, "chats/*"), s.connect(t).follow(t, other, "chats/*")
	identity, err := s.accounts.Check(ann)
	is.NoErr(err)
	is.NoErr(s.accounts.Revoke(t.Context(), account.RevokeSession{Command: handlers.Command{Actor: "user:" + id}, Account: id, Session: identity.Session}))
	ends.ends(t)
	s.chat(t, other, "after")
	is.Equal(stays.next(t).String(), "chats/* create after")
}
