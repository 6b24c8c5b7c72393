package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/push"
	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestNotificationButtonDecidesOnceWithoutLogin(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, p := webtest.NewSystem(t), webtest.NewPhone(t)
	id, ann := s.User(t, "ann", account.User)
	s.Phone(t, ann, p)
	request := s.AppendReferral(t, s.Chat(t, ann, "chat"), "per_1")
	approve := p.Button(t, "Approve")
	is.True(strings.HasPrefix(approve, s.URL+"/api/pocketcoder/act/"))
	path := strings.TrimPrefix(approve, s.URL)

	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} { // a link preview must not decide
		status, _ := s.Raw(t, "", method, path, nil)
		is.Equal(status, http.StatusNotFound)
	}
	permission := func() map[string]any {
		_, record := s.Call(t, ann, "GET", webtest.RecordsPath("permissions")+"/"+request, nil)
		return record
	}
	is.Equal(permission()["status"], "draft")
	status, answer := s.Call(t, "", "POST", path, nil)
	is.Equal(status, http.StatusOK)
	is.Equal(answer, map[string]any{"ok": true, "status": "authorized"})
	expect.Eventually(t, "the record shows it", func() bool { return permission()["status"] == "authorized" })
	is.Equal([]any{permission()["approved_by"], permission()["device"]}, []any{id, "Phone"})
	status, answer = s.Call(t, "", "POST", path, nil)
	is.Equal(status, http.StatusBadRequest)
	is.Equal(answer["message"], "this button was used already")
	status, _ = s.Call(t, "", "POST", "/api/pocketcoder/act/unknown", nil)
	is.Equal(status, http.StatusNotFound)
}

// A connection to the Internet with IPv6 has 2^64 addresses.
func TestGuessingButtonTokensIsRateLimited(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	for _, address := range []string{"192.0.2.1:%d", "[2001:db8::%x]:1"} {
		limited := false
		for i := range 100 {
			r := webtest.Request("POST", "/api/pocketcoder/act/guess", "")
			r.RemoteAddr = fmt.Sprintf(address, i+1)
			w := httptest.NewRecorder()
			s.Config.Handler.ServeHTTP(w, r)
			limited = limited || w.Code == http.StatusTooManyRequests
		}
		if !limited {
			t.Errorf("100 guesses at once from %s are accepted", address)
		}
	}
}

func TestViewerOfChatIsNotNotified(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ann, annToken := s.User(t, "ann", account.User)
	_, bobToken := s.User(t, "bob", account.User)
	chat, other := s.Chat(t, annToken, "chat"), s.Chat(t, annToken, "other")
	filtered := "messages/*?options=" + url.QueryEscape(`{"query":{"filter":"chat = '`+chat+`'"}}`)
	f := s.Connect(t)
	for _, topic := range []string{"chats:" + chat, "chats/" + chat, filtered} {
		is.True(!s.Web.Realtime.IsViewing(ann, chat))
		f.Follow(t, annToken, topic)
		is.True(s.Web.Realtime.IsViewing(ann, chat))
		is.True(!s.Web.Realtime.IsViewing(ann, other))
		f.Follow(t, annToken, "chats/*", "permissions/*") // the app is open, at its list of chats
	}
	s.Connect(t).Follow(t, bobToken, "chats:"+chat) // bob may not see it
	bob, err := s.Accounts.Check(bobToken)
	is.NoErr(err)
	is.True(!s.Web.Realtime.IsViewing(bob.Account, chat))
	is.True(!s.Web.Realtime.IsViewing(ann, chat))
}

func TestUserIsNotifiedOfPendingRequestAfterLeavingTheChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, p := webtest.NewSystem(t), webtest.NewPhone(t)
	id, ann := s.User(t, "ann", account.User)
	s.Phone(t, ann, p)
	chat := s.Chat(t, ann, "chat")
	browser := s.Connect(t)
	browser.Follow(t, ann, "chats:"+chat)
	is.True(s.Web.Realtime.IsViewing(id, chat))
	request := s.AppendReferral(t, chat, "per_1")
	seq := s.Model.Seq()
	expect.Eventually(t, "push has seen the request", func() bool {
		seen, err := s.Log.LastAcked(t.Context(), push.Consumer)
		is.NoErr(err)
		return seen >= seq
	})
	is.Equal(len(p.Got), 0)
	browser.Follow(t, ann, "chats/*") // the list of chats
	status, _ := s.Call(t, "", "POST", strings.TrimPrefix(p.Button(t, "Approve"), s.URL), nil)
	is.Equal(status, http.StatusOK)
	expect.Eventually(t, "the record shows it", func() bool {
		_, record := s.Call(t, ann, "GET", webtest.RecordsPath("permissions")+"/"+request, nil)
		return record["status"] == "authorized"
	})
}

func TestUsersNotifyOnlyThemselvesAndStaffNotifiesAll(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, p := webtest.NewSystem(t), webtest.NewPhone(t)
	ann, annToken := s.User(t, "ann", account.User)
	bob, bobToken := s.User(t, "bob", account.User)
	_, bot := s.User(t, "bot", account.Agent)
	_, root := s.User(t, "root", account.Admin)
	device := s.Phone(t, annToken, p)
	annsChat := s.Chat(t, annToken, "chat")
	post := func(token string, body map[string]any) int {
		t.Helper()
		status, _ := s.Call(t, token, "POST", "/api/pocketcoder/push", body)
		return status
	}
	to := func(user string, more ...string) map[string]any {
		body := map[string]any{"user_id": user, "type": "task_complete", "title": "Title", "message": "Message"}
		if len(more) > 0 {
			body["chat"] = more[0]
		}
		return body
	}
	for _, token := range []string{annToken, bot, root} {
		is.Equal(post(token, to(ann, annsChat)), http.StatusOK)
		expect.Contains(t, p.Next(t).Body, `"title":"Title","message":"Message","type":"task_complete","chat":"`+annsChat+`"`)
	}
	is.Equal(post(annToken, to(bob)), http.StatusForbidden)
	is.Equal(post("", to(ann)), http.StatusUnauthorized)
	is.Equal(post(root, to("unknown")), http.StatusBadRequest)
	is.Equal(post(root, to("")), http.StatusBadRequest)
	is.Equal(post(bobToken, to(bob, annsChat)), http.StatusBadRequest) // bob may not see it
	is.Equal(post(root, map[string]any{"user_id": ann}), http.StatusBadRequest)
	is.Equal(post(root, map[string]any{"user_id": ann, "type": "a b"}), http.StatusBadRequest)

	test := func(token, device string) int {
		status, _ := s.Call(t, token, "POST", "/api/pocketcoder/push/test", map[string]any{"device": device})
		return status
	}
	is.Equal(test(annToken, device), http.StatusOK)
	expect.Contains(t, p.Next(t).Body, `"type":"test"`)
	is.Equal(test(bobToken, device), http.StatusNotFound)
	is.Equal(test(root, "nothing"), http.StatusNotFound)

	status, key := s.Call(t, annToken, "GET", "/api/pocketcoder/push/key", nil)
	is.Equal([]any{status, key["key"]}, []any{http.StatusOK, "public"})
}
