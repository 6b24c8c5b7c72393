package push_test

import (
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
)

// body is what an app reads.
type body struct {
	ID, Title, Message, Type, Chat, Click string
	Data                                  map[string]string
	Done                                  bool
	Actions                               []struct{ Action, Title, URL string }
}

func read(t testing.TB, text string) (b body) {
	t.Helper()
	check(t, json.Unmarshal([]byte(text), &b))
	return b
}

func TestAnAskIsPushedWithWhatAppsAndNtfyRead(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic?up=1")
	chat := s.chat(ann, "Größe")
	s.asked(chat, "per_1", "rm -r build")

	got := s.next(r, 0)
	is.Equal([]string{got.method, got.path}, []string{"POST", "/topic?up=1"})
	b := read(t, got.body)
	is.Equal(b.Title, "Größe: may I run this?")
	is.Equal(b.Message, "rm -r build\nin /workspace\nno rule allows it")
	is.Equal([]string{b.Type, b.Chat}, []string{"permission", chat})
	is.Equal(b.Data, map[string]string{"type": "permission", "chat": chat, "permission": "per_1"})
	is.Equal(len(b.ID), 32)

	title, err := new(mime.WordDecoder).DecodeHeader(got.header.Get("Title"))
	is.NoErr(err)
	is.Equal(title, b.Title)
	is.Equal(got.header.Get("Click"), baseURL+"/?chat="+chat)
	is.Equal(got.header.Get("Priority"), "high")
	is.Equal(got.header.Get("Tags"), "raised_hand,permission")
	is.Equal(got.header.Get("X-Sequence-ID"), b.ID)
	is.Equal([]string{got.header.Get("Template"), got.header.Get("Message")}, []string{"yes", "{{.message}}"})
	is.Equal(len(buttons(t, got)), 2)

	s.becomes("evt.chat."+chat, "queued", "sent")
	is.Equal(s.told("evt.chat." + chat)[1], events.NotificationSent{Notification: b.ID, Device: "d1", Service: "unifiedpush", Host: "127.0.0.1", Attempts: 1})
}

func TestAButtonDecidesOnceInItsOwnersName(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "chat")
	s.asked(chat, "per_1", "ls")
	all := buttons(t, s.next(r, 0))

	decision, err := s.Act(t.Context(), token(t, all["Approve"]), "192.0.2.1")
	is.NoErr(err)
	is.Equal(decision, events.Authorized)
	var decided events.Event
	_, err = s.log.Fold(t.Context(), events.ChatSubject(chat, "permission.decided"), 0, func(e events.Event) error { decided = e; return nil })
	is.NoErr(err)
	d, err := events.Decode(decided)
	is.NoErr(err)
	is.Equal(decided.Actor, events.UserActor(ann))
	is.Equal(d.(events.PermissionDecided).Client, events.Client{Address: "192.0.2.1", Device: "Phone of " + ann})
	is.Equal(d.(events.PermissionDecided).Command, "ls")

	_, err = s.Act(t.Context(), token(t, all["Approve"]), "")
	is.Equal(err.Error(), "this button was used already")
	_, err = s.Act(t.Context(), token(t, all["Deny"]), "")
	is.True(strings.Contains(err.Error(), "settled already")) // the other one, too late
	for _, unknown := range []string{"", "x", strings.Repeat("x", 1000), "a.b.>"} {
		_, err = s.Act(t.Context(), unknown, "")
		is.Equal(err.Error(), "there is no such button")
	}
}

func TestOfManyWhoPressAButtonAtOnceOneDecides(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	s.asked(s.chat(ann, "chat"), "per_1", "ls")
	deny := token(t, buttons(t, s.next(r, 0))["Deny"])
	results := make(chan error)
	for range 8 {
		go func() { _, err := s.Act(t.Context(), deny, ""); results <- err }()
	}
	done := 0
	for range 8 {
		if <-results == nil {
			done++
		}
	}
	is.Equal(done, 1)
}

func TestAButtonDoesNothingAnyMore(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(s *system, ann, button string){
		"when it has expired": func(s *system, _, button string) { s.expire(button) },
		"when its account is disabled": func(s *system, ann, _ string) {
			yes := true
			_, err := s.accounts.UpdateAccount(s.t.Context(), account.UpdateAccount{Account: ann, Disabled: &yes})
			check(s.t, err)
		},
		"when its account became an agent": func(s *system, ann, _ string) {
			role := account.Agent
			_, err := s.accounts.UpdateAccount(s.t.Context(), account.UpdateAccount{Account: ann, Role: &role})
			check(s.t, err)
		},
		"when its device was deactivated":    func(s *system, _, _ string) { s.save("devices", "d1", map[string]any{"is_active": false}) },
		"when its device is somebody's else": func(s *system, _, _ string) { s.save("devices", "d1", map[string]any{"user": "bob"}) },
		"when the chat has another owner": func(s *system, _, _ string) {
			bob := "bob"
			s.append("c1", events.ChatUpdated{User: &bob})
		},
		"when the ask is decided": func(s *system, _, _ string) { s.decide("c1", "per_1", events.Denied) },
		"when the ask has expired": func(s *system, _, _ string) {
			s.append("c1", events.PermissionExpired{Permission: "per_1", Reason: "gone"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s, r := newSystem(t), newReceiver(t, nil)
			ann := s.user("ann", account.User)
			s.user("root", account.Admin) // the last administrator stays one
			s.device("d1", ann, "unifiedpush", r.URL+"/topic")
			s.append("c1", events.ChatCreated{Title: "chat", User: ann, Engine: "local"})
			s.asked("c1", "per_1", "ls")
			approve := buttons(t, s.next(r, 0))["Approve"]
			before := s.count("c1", events.PermissionDecided{})
			spoil(s, ann, approve)
			if name == "when the ask is decided" {
				before++
			}
			_, err := s.Act(t.Context(), token(t, approve), "")
			is.True(err != nil)
			is.Equal(s.count("c1", events.PermissionDecided{}), before)
		})
	}
}

// expire makes the button's time be over.
func (s *system) expire(button string) {
	s.t.Helper()
	keys, err := s.secrets.Keys(s.t.Context(), "act")
	check(s.t, err)
	for _, key := range keys {
		value, _, err := s.secrets.Get(s.t.Context(), key)
		check(s.t, err)
		var a map[string]any
		check(s.t, json.Unmarshal(value, &a))
		if strings.Contains(string(value), token(s.t, button)) {
			s.t.Error("the token itself is kept")
		}
		expires, err := time.Parse(time.RFC3339, a["expires"].(string))
		check(s.t, err)
		if left := time.Until(expires); left < 14*time.Minute || left > 15*time.Minute {
			s.t.Errorf("a button holds for %s", left)
		}
		a["expires"] = time.Now().Add(-time.Second).UTC()
		value, _ = json.Marshal(a)
		check(s.t, s.secrets.Put(s.t.Context(), key, value))
	}
}

// count counts the events of a kind in a chat.
func (s *system) count(chat string, d events.Data) (n int) {
	s.t.Helper()
	_, err := s.log.Fold(s.t.Context(), events.ChatSubject(chat, d.Kind()), 0, func(events.Event) error { n++; return nil })
	check(s.t, err)
	return n
}

func TestButtonsThatExpiredAreRemoved(t *testing.T) {
	t.Parallel()
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "chat")
	s.asked(chat, "per_1", "ls")
	s.becomes("evt.chat."+chat, "queued", "sent")
	s.expire(buttons(t, s.next(r, 0))["Deny"])
	s.stop()
	s.start()
	s.eventually("the buttons are gone", func() bool {
		keys, err := s.secrets.Keys(t.Context(), "act")
		check(t, err)
		return len(keys) == 0
	})
}

func TestApproveIsOfferedOnlyWhereAllOfItIsShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "")
	for i, c := range []struct {
		command, shown string
		whole          bool
	}{
		{"ls\x1b[2K\n\trm -r / # \u202e\u200b\u3164", "ls␛[2K␊␉rm -r / # <U+202E><U+200B><U+3164>", true},
		{strings.Repeat("ä", 200), strings.Repeat("ä", 200), true},
		{strings.Repeat("ä", 200) + "; rm -r /", strings.Repeat("ä", 200) + "…", false},
		{"curl -H " + secret + " x", "curl -H [redacted] x", true}, // the log holds no more of it, so that nothing more is decided
	} {
		s.asked(chat, "per_"+string(rune('a'+i)), c.command)
		got := s.next(r, i)
		shown, _, _ := strings.Cut(read(t, got.body).Message, "\n")
		is.Equal(shown, c.shown)
		all := buttons(t, got)
		_, offered := all["Approve"]
		is.Equal(offered, c.whole)
		is.True(all["Deny"] != "")
	}
	s.said(chat, events.PermissionAsked, `{"id":"per_edit","sessionID":"s","permission":"edit","patterns":["a.go"],"metadata":{"filepath":"/w/a.go","diff":"`+strings.Repeat("+x", 200)+`"}}`)
	s.append(chat, events.PermissionReferred{Permission: "per_edit"})
	got := s.next(r, 4)
	is.True(strings.HasPrefix(read(t, got.body).Message, "/w/a.go␊+x+x"))
	is.Equal(buttons(t, got)["Approve"], "")
}

func TestNobodyIsToldWho(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(s *system, ann, chat string){
		"looks at the chat": func(s *system, ann, chat string) { s.present.Store(ann + "/" + chat) },
		"has turned the type off": func(s *system, ann, _ string) {
			s.save("notification_rules", "r1", map[string]any{"user": ann, "rules": map[string]bool{"permission": false}})
		},
		"has turned it off as text": func(s *system, ann, _ string) {
			s.save("notification_rules", "r1", map[string]any{"user": ann, "rules": `{"permission":false}`})
		},
		"has deactivated the device": func(s *system, _, _ string) { s.save("devices", "d1", map[string]any{"is_active": false}) },
		"owns another device":        func(s *system, _, _ string) { s.save("devices", "d1", map[string]any{"user": "bob"}) },
		"is disabled": func(s *system, ann, _ string) {
			yes := true
			_, err := s.accounts.UpdateAccount(s.t.Context(), account.UpdateAccount{Account: ann, Disabled: &yes})
			check(s.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s, r := newSystem(t), newReceiver(t, nil)
			ann := s.user("ann", account.User)
			s.device("d1", ann, "unifiedpush", r.URL+"/topic")
			chat := s.chat(ann, "chat")
			prepare(s, ann, chat)
			s.asked(chat, "per_1", "ls")
			s.worked()
			is.Equal(s.kinds("evt.chat."+chat), nil)
			is.Equal(len(r.requests()), 0)
		})
	}
}

func TestRulesTurnOffTheirTypeAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	s.save("notification_rules", "r1", map[string]any{"user": ann, "rules": map[string]any{"question": false, "permission": true, "odd": "x"}})
	chat := s.chat(ann, "chat")
	s.question(chat, "que_1")
	s.asked(chat, "per_1", "ls")
	is.Equal(read(t, s.next(r, 0).body).Type, "permission")
	is.Equal(len(r.requests()), 1)
}

func (s *system) question(chat, id string) {
	s.t.Helper()
	s.said(chat, events.QuestionAsked, `{"id":"`+id+`","sessionID":"ses_`+chat+`","questions":[{"question":"Which port?","header":"Port","options":[{"label":"80"},{"label":"443"}]},{"question":"Sure?","header":"Sure","options":[]}]}`)
}

func TestAQuestionIsPushedAndWithdrawnOnceAllOfItIsAnswered(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic?auth=x")
	chat := s.chat(ann, "chat")
	s.question(chat, "que_1")
	got := s.next(r, 0)
	b := read(t, got.body)
	is.Equal([]string{b.Type, b.Title, b.Message}, []string{"question", "chat: a question", "Which port?\n80 / 443\nand 1 more"})
	is.Equal(got.header.Get("Actions"), "")
	s.append(chat, events.QuestionAnswered{Question: "que_1", Index: 0, Answers: []string{"80"}})
	s.worked()
	is.Equal(len(r.requests()), 1)
	s.append(chat, events.QuestionAnswered{Question: "que_1", Index: 1, Answers: []string{"yes"}})
	cleared := s.next(r, 1)
	is.Equal([]string{cleared.method, cleared.path}, []string{"PUT", "/topic/" + b.ID + "/clear?auth=x"})
}

func TestWhatIsDecidedElsewhereIsWithdrawn(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(s *system, chat string){
		"decided": func(s *system, chat string) { s.decide(chat, "per_1", events.Denied) },
		"expired": func(s *system, chat string) { s.append(chat, events.PermissionExpired{Permission: "per_1"}) },
		"answered in OpenCode": func(s *system, chat string) {
			s.said(chat, events.PermissionReplied, `{"sessionID":"ses_x","requestID":"per_1","reply":"once"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := newSystem(t)
			r := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPut {
					w.WriteHeader(http.StatusNotFound) // an ntfy before 2.16: that says nothing about the device
				}
			})
			ann := s.user("ann", account.User)
			s.device("d1", ann, "unifiedpush", r.URL+"/topic")
			chat := s.chat(ann, "chat")
			s.asked(chat, "per_1", "ls")
			s.becomes("evt.chat."+chat, "queued", "sent")
			settle(s, chat)
			is.Equal(s.next(r, 1).path, "/topic/"+read(t, r.requests()[0].body).ID+"/clear")
			_, active, err := s.record("devices", "d1")
			is.NoErr(err)
			is.True(active)
			s.becomes("evt.chat."+chat, "queued", "sent")
			s.said(chat, events.PermissionReplied, `{"sessionID":"ses_x","requestID":"per_1","reply":"reject"}`)
			s.worked()
			check(t, s.Test(t.Context(), ann, "d1")) // behind it in the device's queue
			is.Equal(s.next(r, 2).method, http.MethodPost)
		})
	}
}

func TestAChatWithoutAnOwnerIsTheAdministrators(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	for name, role := range map[string]string{"ann": account.User, "bot": account.Agent, "root": account.Admin, "boss": account.Admin} {
		s.device(name, s.user(name, role), "unifiedpush", r.URL+"/"+name)
	}
	s.asked(s.chat("", "adopted"), "per_1", "ls")
	s.next(r, 1)
	s.worked()
	paths := []string{r.requests()[0].path, r.requests()[1].path}
	slices.Sort(paths)
	is.Equal(paths, []string{"/boss", "/root"})
	is.Equal(len(r.requests()), 2)
}

func TestAToolServerThatWaitsIsPushedToAdministratorsOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	s.device("d1", s.user("root", account.Admin), "unifiedpush", r.URL+"/root")
	s.device("d2", s.user("ann", account.User), "unifiedpush", r.URL+"/ann")
	server := map[string]any{"name": "search", "status": "pending", "reason": "to look things up", "image": "mcp/search"}
	s.save("mcp_servers", "m1", server)
	b := read(t, s.next(r, 0).body)
	is.Equal([]string{b.Type, b.Title, b.Message}, []string{"mcp_request", "May search be used?", "mcp/search␊to look things up"})
	s.save("mcp_servers", "m1", map[string]any{"reason": "to look more things up"})
	s.worked()
	is.Equal(len(r.requests()), 1) // it still waits
	s.save("mcp_servers", "m1", map[string]any{"status": "denied"})
	is.Equal(s.next(r, 1).path, "/root/"+b.ID+"/clear")
	s.save("mcp_servers", "m1", map[string]any{"status": "pending"})
	is.True(read(t, s.next(r, 2).body).ID != b.ID) // it waits anew
	s.becomes("evt.config.mcp_servers.m1", "queued", "sent", "queued", "sent")
}

func TestEndpointsTokensAndSecretsStandInNoEventAndNoLine(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	r := newReceiver(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/confidential-topic")
	s.device("d2", ann, "unifiedpush", "http://127.0.0.1:1/confidential-topic")
	chat := s.chat(ann, "chat")
	s.asked(chat, "per_1", "ls")
	s.eventually("both failed", func() bool { return s.count(chat, events.NotificationFailed{}) == 2 })
	var stored strings.Builder
	_, err := s.log.Fold(t.Context(), events.ChatFilter(chat), 0, func(e events.Event) error { stored.Write(e.Data); return nil })
	is.NoErr(err)
	approve := token(t, buttons(t, r.requests()[0])["Approve"])
	for _, text := range []string{stored.String(), s.lines.String()} {
		is.True(!strings.Contains(text, "confidential"))
		is.True(!strings.Contains(text, approve))
		is.True(strings.Contains(text, "127.0.0.1"))
	}
}

func TestAnAskOfOurOwnIsPushedAndDecidedToo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "chat")
	s.append(chat, events.PermissionRequested{Permission: "b1", Type: "budget", Message: "The chat has cost 1.00 of 1.00 today.", Metadata: []byte(`{"limit":1}`)})
	s.append(chat, events.PermissionReferred{Permission: "b1", Reason: "a budget is reached"})
	got := s.next(r, 0)
	b := read(t, got.body)
	is.Equal([]string{b.Type, b.Title, b.Message}, []string{"permission", "chat: may I spend more?", "The chat has cost 1.00 of 1.00 today.\na budget is reached"})
	_, err := s.Act(t.Context(), token(t, buttons(t, got)["Approve"]), "")
	is.NoErr(err)
	is.Equal(s.count(chat, events.PermissionDecided{}), 1)
}

func TestFiguresOfOneAsk(t *testing.T) {
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "chat")
	var took []time.Duration
	for i := range 50 {
		began := time.Now()
		s.asked(chat, "per_"+events.NewID(), "ls")
		s.next(r, i)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("ask to push sent: p50 %s, p90 %s", took[25], took[45])
}
