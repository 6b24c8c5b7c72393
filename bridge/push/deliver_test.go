package push_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/push"
	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// appendFirstRequest creates an account with a device, and a chat of it with a permission request.
func (s *system) appendFirstRequest(endpoint string) (chat string) {
	s.t.Helper()
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", endpoint)
	chat = s.chat(ann, "chat")
	s.appendRequest(chat, "per_1", "ls")
	return chat
}

func TestAPushServiceThatIsDownIsTriedAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	var n atomic.Int64
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		switch n.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	chat := s.appendFirstRequest(r.URL + "/topic")
	s.awaitKinds("evt.chat."+chat, "queued", "sent")
	is.Equal(s.notificationsAbout("evt.chat." + chat)[1].(events.NotificationSent).Attempts, 3)
	is.Equal(read(t, r.requests()[0].body).ID, read(t, r.requests()[2].body).ID)
	is.NoErr(s.model.CatchUp(t.Context()))
	sent, _, err := s.model.NotificationTo(t.Context(), read(t, r.requests()[0].body).ID, "d1")
	is.NoErr(err)
	is.Equal([]string{sent.State, string(sent.Notice)}, []string{projections.NotificationSent, ""}) // its text is not kept
	// each attempt has buttons of its own
	is.True(r.requests()[0].header.Get("Actions") != r.requests()[2].header.Get("Actions"))
}

func TestAPushThatIsNotAcceptedFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status   int
		attempts int
		reason   string
		gone     bool
	}{
		"for ever down":  {http.StatusBadGateway, 3, "502 Bad Gateway", false},
		"refused":        {http.StatusForbidden, 1, "403 Forbidden", false},
		"a device gone":  {http.StatusGone, 1, "410 Gone", true},
		"unknown device": {http.StatusNotFound, 1, "404 Not Found", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := newSystem(t)
			r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.status) })
			chat := s.appendFirstRequest(r.URL + "/topic")
			s.awaitKinds("evt.chat."+chat, "queued", "failed")
			is.Equal(s.notificationsAbout("evt.chat." + chat)[1], events.NotificationFailed{
				Notification: read(t, r.requests()[0].body).ID, Device: "d1", Service: "unifiedpush", Host: "127.0.0.1", Attempts: c.attempts, Reason: c.reason, Gone: c.gone,
			})
			s.awaitConsumer()
			d, _, err := s.record("devices", "d1")
			is.NoErr(err)
			is.Equal(strings.Contains(string(d.Fields), `"is_active":false`), c.gone)
			expect.Contains(t, string(d.Fields), "Phone of") // the rest of the record stays
			s.appendRequest(chat, "per_2", "ls")
			if c.gone {
				s.awaitConsumer()
				is.Equal(len(r.requests()), 1)
			}
		})
	}
}

func TestADecidedRequestIsNotSent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	tried := make(chan struct{})
	s := newSystem(t)
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		<-tried
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	chat := s.appendFirstRequest(r.URL + "/topic")
	s.awaitRequest(r, 0)
	s.decide(chat, "per_1", events.Denied)
	close(tried)
	s.awaitKinds("evt.chat."+chat, "queued", "failed")
	is.Equal(s.notificationsAbout("evt.chat." + chat)[1].(events.NotificationFailed).Reason, "it was decided before it could be sent")
	s.awaitConsumer()
	is.Equal(len(r.requests()), 1)
}

func TestASlowDeviceDelaysNoOther(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, fast := newSystem(t), newReceiver(t, nil)
	release := make(chan struct{})
	slow := newReceiver(t, func(http.ResponseWriter, *http.Request) { <-release })
	ann := s.user("ann", account.User)
	s.device("slow", ann, "unifiedpush", slow.URL+"/topic")
	s.device("fast", ann, "unifiedpush", fast.URL+"/topic")
	chat := s.chat(ann, "chat")
	for i := range 5 {
		id := fmt.Sprint("per_", i)
		s.appendRequest(chat, id, "ls")
		s.awaitRequest(fast, 2*i)
		s.decide(chat, id, events.Denied) // a decision is not delayed either
		s.awaitRequest(fast, 2*i+1)
	}
	is.Equal(len(slow.requests()), 1)
	close(release)
	s.eventually("the slow one's queue is done", func() bool { return s.count(chat, events.NotificationFailed{}) == 4 })
	is.Equal(s.count(chat, events.NotificationSent{}), 6) // the others were decided before they were sent
}

func TestAFullQueueFailsAtOnce(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	release := make(chan struct{})
	r := newReceiver(t, func(http.ResponseWriter, *http.Request) { <-release })
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	for i := range 55 {
		check(t, s.SendNotice(t.Context(), ann, events.Notice{Type: "news", Message: fmt.Sprint(i)}))
	}
	s.eventually("some failed", func() bool {
		return strings.Contains(strings.Join(s.kinds("evt.user."+ann), " "), "failed")
	})
	close(release)
	s.eventually("the rest was sent", func() bool { return len(s.notificationsAbout("evt.user."+ann)) == 110 })
}

func TestHostileEndpointsAreNotReached(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	inner := newReceiver(t, nil)
	for _, c := range []struct {
		endpoint, reason string
		private          bool
	}{
		{inner.URL + "/x", "the endpoint must be https", false},
		{strings.Replace(inner.URL, "http:", "https:", 1), "the endpoint is not allowed: 127.0.0.1 is not a public address", false},
		{strings.Replace(inner.URL, "http://127.0.0.1", "https://localhost", 1), "is not a public address", false},
		{"https://[::ffff:127.0.0.1]:1/", "127.0.0.1 is not a public address", false},
		{"https://169.254.169.254/latest", "169.254.169.254 is not a public address", false},
		{"https://2130706433/", "", false}, // not an address but an unknown name
		{"http://192.0.2.1/x", "http is for loopback and private addresses", true},
		{"file:///etc/passwd", "the endpoint is not a URL", true},
		{"gopher://127.0.0.1/x", "the endpoint must be https", true},
		{"::", "the endpoint is not a URL", true},
		{"", "the endpoint is not a URL", true},
	} {
		s := newSystem(t, func(p *push.Push) { p.Sender.AllowPrivate, p.RetryAfter = c.private, nil })
		chat := s.appendFirstRequest(c.endpoint)
		s.awaitKinds("evt.chat."+chat, "queued", "failed")
		got := s.notificationsAbout("evt.chat." + chat)[1].(events.NotificationFailed)
		if !strings.Contains(got.Reason, c.reason) || got.Gone {
			t.Errorf("%s: %+v", c.endpoint, got)
		}
	}
	is.Equal(len(inner.requests()), 0)
}

func TestRedirectsAreNotFollowedAndAnswersNotReadToTheEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, inner := newSystem(t), newReceiver(t, nil)
	r := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inner.URL, http.StatusTemporaryRedirect)
	})
	chat := s.appendFirstRequest(r.URL + "/topic")
	s.awaitKinds("evt.chat."+chat, "queued", "failed")
	is.Equal(s.notificationsAbout("evt.chat." + chat)[1].(events.NotificationFailed).Reason,
		"307 Temporary Redirect: it redirects, which is not followed")
	is.Equal(len(inner.requests()), 0)

	endless := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
				return
			}
		}
	})
	s.save("devices", "d1", map[string]any{"push_token": endless.URL})
	s.appendRequest(chat, "per_2", "ls")
	s.awaitKinds("evt.chat."+chat, "queued", "failed", "queued", "sent")
}

func TestARestartSendsNothingTwiceAndLosesNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	chat := s.appendFirstRequest(r.URL + "/topic")
	s.awaitKinds("evt.chat."+chat, "queued", "sent")
	s.stop()
	s.appendRequest(chat, "per_2", "ls -l") // while Run is not running
	s.start()
	s.awaitKinds("evt.chat."+chat, "queued", "sent", "queued", "sent")
	s.stop()

	// As after a crash between queueing and sending.
	s.append(chat, events.NotificationQueued{Notification: "n3", Device: "d1", User: "ann",
		Notice: events.Notice{Type: "news", Message: "late", Chat: chat}})
	s.start()
	is.Equal(read(t, s.awaitRequest(r, 2).body).Message, "late")
	s.awaitKinds("evt.chat."+chat, "queued", "sent", "queued", "sent", "queued", "sent")
	s.stop()
	s.start()
	s.awaitConsumer()
	is.Equal(len(r.requests()), 3)
}

func TestARedeliveryIsNotSentAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	chat := s.appendFirstRequest(r.URL + "/topic")
	s.awaitKinds("evt.chat."+chat, "queued", "sent")
	s.redeliver()
	s.awaitConsumer()
	is.Equal(len(r.requests()), 1)
	is.Equal(s.kinds("evt.chat."+chat), []string{"queued", "sent"})
}

// As when another consumer takes the place of the first, and delivers again.
func TestAnOldDecisionWithdrawsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "chat")
	s.appendRequest(chat, "per_1", "ls")
	s.awaitKinds("evt.chat."+chat, "queued", "sent")
	check(t, s.Test(t.Context(), ann, "d1"))
	is.Equal(s.awaitRequest(r, 1).method, http.MethodPost) // so the try that sent the first one is over
	e, err := events.New(chat, events.ActorPolicy, events.PermissionDecided{Permission: "per_1", Decision: events.Denied})
	check(t, err)
	e.Time = e.Time.Add(-2 * time.Hour)
	s.store(e)
	s.awaitConsumer()
	check(t, s.Test(t.Context(), ann, "d1")) // queued after any withdrawal
	is.Equal(s.awaitRequest(r, 2).method, http.MethodPost)
}

// As after a restore, or the loss of the consumer's state.
func TestAConsumerWithoutProgressNotifiesOfWhatIsStillPending(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	u := s.turn()
	s.stop()
	s.forgetConsumer()
	u.submitted(1)
	u.status(u.session, "busy")
	u.answer(1, 1, completed)
	u.status(u.session, "idle")
	s.appendRequest(u.chat, "per_1", "ls")
	s.decide(u.chat, "per_1", events.Denied)
	s.appendRequest(u.chat, "per_2", "ls")
	s.device("d1", s.owner(u.chat), "unifiedpush", r.URL+"/topic")
	s.start()
	is.Equal(read(t, s.awaitRequest(r, 0).body).Data["permission"], "per_2")
	s.awaitConsumer()
	s.awaitKinds("evt.chat."+u.chat, "queued", "sent") // and nothing of the turn that ended
}

func TestANoticeIsSent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "chat")
	check(t, s.SendNotice(t.Context(), ann, events.Notice{Type: "task_complete", Title: "Done {{.x}}",
		Message: "All\x00 of it", Chat: chat}))
	got := s.awaitRequest(r, 0)
	b := read(t, got.body)
	is.Equal([]string{b.Type, b.Title, b.Message, b.Chat}, []string{"task_complete", "Done {{.x}}", "All␀ of it", chat})
	is.Equal(got.header.Get("Title"), "Done { { .x}}") // ntfy treats the title as a template
	is.Equal(got.header.Get("Actions"), "")
	s.save("notification_rules", "r1", map[string]any{"user": ann, "rules": map[string]bool{"news": false, "test": false}})
	check(t, s.SendNotice(t.Context(), ann, events.Notice{Type: "news", Message: "not wanted"}))
	check(t, s.Test(t.Context(), ann, "d1"))
	is.Equal(read(t, s.awaitRequest(r, 1).body).Type, "test")
	is.True(s.Test(t.Context(), "bob", "d1") != nil)
	is.True(s.Test(t.Context(), ann, "d2") != nil)
	s.awaitKinds("evt.user."+ann, "queued", "sent")
}

func TestTheRelayReceivesTheMessage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r := newReceiver(t, nil)
	s := newSystem(t, func(p *push.Push) {
		p.Sender.Relay, p.Sender.AllowPrivate = push.Relay{URL: r.URL + "/push", Secret: "shared"}, false
	})
	ann := s.user("ann", account.User)
	s.device("d1", ann, "fcm", "firebase-name")
	chat := s.chat(ann, "chat")
	s.appendRequest(chat, "per_1", "ls")
	got := s.awaitRequest(r, 0)
	is.Equal(got.header.Get("X-Relay-Secret"), "shared")
	is.Equal(got.body, fmt.Sprintf(`{"chat":%q,"id":%q,"message":"ls\nin /workspace\nno rule allows it\nChat: chat","permission":"per_1","service":"fcm","title":"Run ls","token":"firebase-name","type":"permission","user_id":%q}`,
		chat, s.notificationsAbout("evt.chat." + chat)[0].(events.NotificationQueued).Notification, ann))
	s.awaitKinds("evt.chat."+chat, "queued", "sent")

	r.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
	s.appendRequest(chat, "per_2", "ls")
	s.awaitKinds("evt.chat."+chat, "queued", "sent", "queued", "failed")
	// the relay is missing, not the device
	is.True(!s.notificationsAbout("evt.chat." + chat)[3].(events.NotificationFailed).Gone)
}

func TestWithoutARelayFirebaseIsNotReached(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "fcm", "firebase-name")
	e, err := events.NewConfig("devices", "d2", events.ActorSystem, events.Saved{Fields: events.MustEncode(map[string]any{
		"user": ann, "name": "coop", "push_service": "pigeon", "push_token": "coop", "is_active": true})}) // of an older version
	check(t, err)
	_, err = s.log.Append(t.Context(), e)
	check(t, err)
	chat := s.chat(ann, "chat")
	s.appendRequest(chat, "per_1", "ls")
	s.eventually("both failed", func() bool { return s.count(chat, events.NotificationFailed{}) == 2 })
}
