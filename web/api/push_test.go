package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/push"
	"pocketcoder/events"
	"pocketcoder/handlers/account"
)

// phone is a push service with one device behind it.
type phone struct {
	*httptest.Server
	got chan pushed
}

type pushed struct {
	header http.Header
	body   string
}

func newPhone(t testing.TB) phone {
	t.Helper()
	p := phone{got: make(chan pushed, 16)}
	p.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); r.Method == http.MethodPost {
			p.got <- pushed{r.Header, string(body)}
		}
	}))
	t.Cleanup(p.Close)
	return p
}

// next waits for a notification.
func (p phone) next(t testing.TB) pushed {
	t.Helper()
	select {
	case got := <-p.got:
		return got
	case <-time.After(20 * time.Second):
		t.Fatal("no notification within 20 s")
		return pushed{}
	}
}

// button gives the address of a button of the next notification.
func (p phone) button(t testing.TB, label string) string {
	t.Helper()
	actions := p.next(t).header.Get("Actions")
	_, rest, found := strings.Cut(actions, "http, "+label+", ")
	if !found {
		t.Fatalf("no button %s in %q", label, actions)
	}
	address, _, _ := strings.Cut(rest, ",")
	return address
}

// phone makes an account's device, and gives the id of its record.
func (s *system) phone(t testing.TB, token string, p phone) string {
	t.Helper()
	status, d := s.call(t, token, "POST", recordsOf("devices"), map[string]any{"name": "Phone", "push_service": "unifiedpush", "push_token": p.URL + "/topic", "is_active": true})
	if status != http.StatusOK {
		t.Fatalf("create device: %d %v", status, d)
	}
	return d["id"].(string)
}

// needed makes the policy leave an ask to a person.
func (s *system) needed(t testing.TB, chat, ask string) (record string) {
	t.Helper()
	record = s.asked(t, chat, ask)
	s.append(t, chat, events.PermissionReferred{Permission: ask, Reason: "no rule allows it", Cwd: "/workspace"})
	return record
}

func TestANotificationsButtonDecidesOnceWithoutALogin(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, p := newSystem(t), newPhone(t)
	id, ann := s.user(t, "ann", account.User)
	s.phone(t, ann, p)
	ask := s.needed(t, s.chat(t, ann, "chat"), "per_1")
	approve := p.button(t, "Approve")
	is.True(strings.HasPrefix(approve, s.URL+"/api/pocketcoder/act/"))
	path := strings.TrimPrefix(approve, s.URL)

	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} { // a preview of the link is no decision
		status, _ := s.raw(t, "", method, path, nil)
		is.Equal(status, http.StatusNotFound)
	}
	permission := func() map[string]any {
		_, record := s.call(t, ann, "GET", recordsOf("permissions")+"/"+ask, nil)
		return record
	}
	is.Equal(permission()["status"], "draft")
	status, answer := s.call(t, "", "POST", path, nil)
	is.Equal(status, http.StatusOK)
	is.Equal(answer, map[string]any{"ok": true, "status": "authorized"})
	eventually(t, "the record shows it", func() bool { return permission()["status"] == "authorized" })
	is.Equal([]any{permission()["approved_by"], permission()["device"]}, []any{id, "Phone"})
	status, answer = s.call(t, "", "POST", path, nil)
	is.Equal(status, http.StatusBadRequest)
	is.Equal(answer["message"], "this button was used already")
	status, _ = s.call(t, "", "POST", "/api/pocketcoder/act/unknown", nil)
	is.Equal(status, http.StatusNotFound)
}

func TestWhoGuessesButtonsIsSlowedDown(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for range 100 {
		if status, _ := s.raw(t, "", "POST", "/api/pocketcoder/act/guess", nil); status == http.StatusTooManyRequests {
			return
		}
	}
	t.Error("100 guesses at once are taken")
}

func TestWhoLooksAtAChatIsNotNotified(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann, annToken := s.user(t, "ann", account.User)
	_, bobToken := s.user(t, "bob", account.User)
	chat, other := s.chat(t, annToken, "chat"), s.chat(t, annToken, "other")
	filtered := "messages/*?options=" + url.QueryEscape(`{"query":{"filter":"chat = '`+chat+`'"}}`)
	f := s.connect(t)
	for _, topic := range []string{"chats:" + chat, "chats/" + chat, filtered} {
		is.True(!s.web.Realtime.Present(ann, chat))
		f.follow(t, annToken, topic)
		is.True(s.web.Realtime.Present(ann, chat))
		is.True(!s.web.Realtime.Present(ann, other))
		f.follow(t, annToken, "chats/*", "permissions/*") // the app is open, at its list of chats
	}
	s.connect(t).follow(t, bobToken, "chats:"+chat) // bob may not see it
	bob, err := s.accounts.Check(bobToken)
	is.NoErr(err)
	is.True(!s.web.Realtime.Present(bob.Account, chat))
	is.True(!s.web.Realtime.Present(ann, chat))
}

func TestWhoStopsFollowingAChatIsNotifiedOfWhatIsPendingThere(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, p := newSystem(t), newPhone(t)
	id, ann := s.user(t, "ann", account.User)
	s.phone(t, ann, p)
	chat := s.chat(t, ann, "chat")
	browser := s.connect(t)
	browser.follow(t, ann, "chats:"+chat)
	is.True(s.web.Realtime.Present(id, chat))
	ask := s.needed(t, chat, "per_1")
	seq := s.model.Seq()
	eventually(t, "push has seen the request", func() bool {
		seen, err := s.log.Worked(t.Context(), push.Worker)
		is.NoErr(err)
		return seen >= seq
	})
	is.Equal(len(p.got), 0)
	browser.follow(t, ann, "chats/*") // the list of chats
	status, _ := s.call(t, "", "POST", strings.TrimPrefix(p.button(t, "Approve"), s.URL), nil)
	is.Equal(status, http.StatusOK)
	eventually(t, "the record shows it", func() bool {
		_, record := s.call(t, ann, "GET", recordsOf("permissions")+"/"+ask, nil)
		return record["status"] == "authorized"
	})
}

func TestPeopleNotifyThemselvesAndStaffNotifiesAll(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, p := newSystem(t), newPhone(t)
	ann, annToken := s.user(t, "ann", account.User)
	bob, bobToken := s.user(t, "bob", account.User)
	_, bot := s.user(t, "bot", account.Agent)
	_, root := s.user(t, "root", account.Admin)
	device := s.phone(t, annToken, p)
	annsChat := s.chat(t, annToken, "chat")
	post := func(token string, body map[string]any) int {
		t.Helper()
		status, _ := s.call(t, token, "POST", "/api/pocketcoder/push", body)
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
		is.True(strings.Contains(p.next(t).body, `"title":"Title","message":"Message","type":"task_complete","chat":"`+annsChat+`"`))
	}
	is.Equal(post(annToken, to(bob)), http.StatusForbidden)
	is.Equal(post("", to(ann)), http.StatusUnauthorized)
	is.Equal(post(root, to("nobody")), http.StatusBadRequest)
	is.Equal(post(root, to("")), http.StatusBadRequest)
	is.Equal(post(bobToken, to(bob, annsChat)), http.StatusBadRequest) // bob may not see it
	is.Equal(post(root, map[string]any{"user_id": ann}), http.StatusBadRequest)
	is.Equal(post(root, map[string]any{"user_id": ann, "type": "a b"}), http.StatusBadRequest)

	test := func(token, device string) int {
		status, _ := s.call(t, token, "POST", "/api/pocketcoder/push/test", map[string]any{"device": device})
		return status
	}
	is.Equal(test(annToken, device), http.StatusOK)
	is.True(strings.Contains(p.next(t).body, `"type":"test"`))
	is.Equal(test(bobToken, device), http.StatusNotFound)
	is.Equal(test(root, "nothing"), http.StatusNotFound)

	status, key := s.call(t, annToken, "GET", "/api/pocketcoder/push/key", nil)
	is.Equal([]any{status, key["key"]}, []any{http.StatusOK, "public"})
}
