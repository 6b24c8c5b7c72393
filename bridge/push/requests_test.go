package push_test

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
)

// body is the JSON that an app reads.
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

func TestARequestIsPushedInTheFormatsOfAppsAndNtfy(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic?up=1")
	chat := s.chat(ann, "Größe")
	s.appendRequest(chat, "per_1", "rm -r build")

	got := s.awaitRequest(r, 0)
	is.Equal([]string{got.method, got.path}, []string{"POST", "/topic?up=1"})
	b := read(t, got.body)
	is.Equal(b.Title, "Run rm -r build")
	is.Equal(b.Message, "rm -r build\nin /workspace\nno rule allows it\nChat: Größe")
	is.Equal([]string{b.Type, b.Chat}, []string{"permission", chat})
	is.Equal(b.Data, map[string]string{"type": "permission", "chat": chat, "permission": "per_1"})
	is.Equal(len(b.ID), 32)

	title, err := new(mime.WordDecoder).DecodeHeader(got.header.Get("Title"))
	is.NoErr(err)
	is.Equal(title, b.Title)
	is.Equal(got.header.Get("Click"), baseURL+"/requests/per_1")
	is.Equal(got.header.Get("Priority"), "high")
	is.Equal(got.header.Get("Tags"), "raised_hand,permission")
	is.Equal(got.header.Get("X-Sequence-ID"), b.ID)
	is.Equal([]string{got.header.Get("Template"), got.header.Get("Message")}, []string{"yes", "{{.message}}"})
	is.Equal(len(buttons(t, got)), 2)

	s.awaitKinds("evt.chat."+chat, "queued", "sent")
	is.Equal(s.notificationsAbout("evt.chat." + chat)[1], events.NotificationSent{Notification: b.ID, Device: "d1",
		Service: "unifiedpush", Host: "127.0.0.1", Attempts: 1})
}

func TestNoNotificationIsSent(t *testing.T) {
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
			s.appendRequest(chat, "per_1", "ls")
			s.awaitConsumer()
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
	s.save("notification_rules", "r1", map[string]any{"user": ann,
		"rules": map[string]any{"question": false, "permission": true, "odd": "x"}})
	chat := s.chat(ann, "chat")
	s.question(chat, "que_1")
	s.appendRequest(chat, "per_1", "ls")
	is.Equal(read(t, s.awaitRequest(r, 0).body).Type, "permission")
	is.Equal(len(r.requests()), 1)
}

func (s *system) question(chat, id string) {
	s.t.Helper()
	s.appendOpenCode(chat, events.QuestionAsked, `{"id":"`+id+`","sessionID":"ses_`+chat+
		`","questions":[{"question":"Which port?","header":"Port","options":[{"label":"80"},{"label":"443"}]},{"question":"Sure?","header":"Sure","options":[]}]}`)
}

func TestAQuestionIsPushedAndWithdrawnOnceAllOfItIsAnswered(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic?auth=x")
	chat := s.chat(ann, "chat")
	s.question(chat, "que_1")
	got := s.awaitRequest(r, 0)
	b := read(t, got.body)
	is.Equal([]string{b.Type, b.Title, b.Message}, []string{"question", "chat: a question",
		"Which port?\n80 / 443\nand 1 more"})
	is.Equal(got.header.Get("Actions"), "")
	s.append(chat, events.QuestionAnswered{Question: "que_1", Index: 0, Answers: []string{"80"}})
	s.awaitConsumer()
	is.Equal(len(r.requests()), 1)
	s.append(chat, events.QuestionAnswered{Question: "que_1", Index: 1, Answers: []string{"yes"}})
	cleared := s.awaitRequest(r, 1)
	is.Equal([]string{cleared.method, cleared.path}, []string{"PUT", "/topic/" + b.ID + "/clear?auth=x"})
}

func TestANotificationOfADecidedRequestIsWithdrawn(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(s *system, chat string){
		"decided": func(s *system, chat string) { s.decide(chat, "per_1", events.Denied) },
		"expired": func(s *system, chat string) { s.append(chat, events.PermissionExpired{Permission: "per_1"}) },
		"answered in OpenCode": func(s *system, chat string) {
			s.appendOpenCode(chat, events.PermissionReplied, `{"sessionID":"ses_x","requestID":"per_1","reply":"once"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := newSystem(t)
			r := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPut {
					w.WriteHeader(http.StatusNotFound) // as ntfy before 2.16 answers
				}
			})
			ann := s.user("ann", account.User)
			s.device("d1", ann, "unifiedpush", r.URL+"/topic")
			chat := s.chat(ann, "chat")
			s.appendRequest(chat, "per_1", "ls")
			s.awaitKinds("evt.chat."+chat, "queued", "sent")
			settle(s, chat)
			is.Equal(s.awaitRequest(r, 1).path, "/topic/"+read(t, r.requests()[0].body).ID+"/clear")
			_, active, err := s.record("devices", "d1")
			is.NoErr(err)
			is.True(active)
			s.awaitKinds("evt.chat."+chat, "queued", "sent")
			s.appendOpenCode(chat, events.PermissionReplied, `{"sessionID":"ses_x","requestID":"per_1","reply":"reject"}`)
			s.awaitConsumer()
			check(t, s.Test(t.Context(), ann, "d1")) // queued after any second withdrawal
			is.Equal(s.awaitRequest(r, 2).method, http.MethodPost)
		})
	}
}

func TestANotificationIsWithdrawnThatIsSentDuringTheDecision(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, decided := newSystem(t), make(chan struct{})
	r := newReceiver(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			<-decided
		}
	})
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "chat")
	s.appendRequest(chat, "per_1", "ls")
	s.awaitRequest(r, 0)
	s.decide(chat, "per_1", events.Denied)
	s.awaitConsumer()
	is.Equal(len(r.requests()), 1)
	close(decided)
	is.Equal(s.awaitRequest(r, 1).method, http.MethodPut)
	s.awaitKinds("evt.chat."+chat, "queued", "sent")
}

func TestAdministratorsAreNotifiedOfAChatWithoutAnOwner(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	for name, role := range map[string]string{"ann": account.User, "bot": account.Agent, "root": account.Admin,
		"boss": account.Admin} {
		s.device(name, s.user(name, role), "unifiedpush", r.URL+"/"+name)
	}
	s.appendRequest(s.chat("", "adopted"), "per_1", "ls")
	s.awaitRequest(r, 1)
	s.awaitConsumer()
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
	server := map[string]any{"name": "search", "status": "pending", "reason": "to look things up",
		"command": "npx -y search@1.2.3", "hosts": []string{"api.example.org"}}
	s.save("mcp_servers", "m1", server)
	b := read(t, s.awaitRequest(r, 0).body)
	is.Equal([]string{b.Type, b.Title, b.Message}, []string{"mcp_request", "May search be used?",
		"npx -y search@1.2.3\n  reaches api.example.org\n  to look things up"})
	s.save("mcp_servers", "m1", map[string]any{"reason": "to look more things up"})
	s.awaitConsumer()
	is.Equal(len(r.requests()), 1) // still pending
	s.save("mcp_servers", "m1", map[string]any{"status": "denied"})
	is.Equal(s.awaitRequest(r, 1).path, "/root/"+b.ID+"/clear")
	s.save("mcp_servers", "m1", map[string]any{"status": "pending"})
	is.True(read(t, s.awaitRequest(r, 2).body).ID != b.ID) // a new notification
	s.awaitKinds("evt.config.mcp_servers.m1", "queued", "sent", "queued", "sent")
}

func TestARefusedKeyIsPushedToAdministratorsOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	s.device("d1", s.user("root", account.Admin), "unifiedpush", r.URL+"/root")
	s.device("d2", s.user("ann", account.User), "unifiedpush", r.URL+"/ann")
	s.save("llm_providers", "p1", map[string]any{"provider_id": "openai", "is_connected": true})
	s.save("llm_providers", "p1", map[string]any{"key_error": "openai refuses the key OPENAI_API_KEY (status 401)."})
	b := read(t, s.awaitRequest(r, 0).body)
	is.Equal([]string{b.Type, b.Title, b.Message}, []string{"provider_key", "The key of openai is refused",
		"openai refuses the key OPENAI_API_KEY (status 401)."})
	s.save("llm_providers", "p1", map[string]any{"models": []string{"m"}})
	s.awaitConsumer()
	is.Equal(len(r.requests()), 1) // still the same refusal
	s.save("llm_providers", "p1", map[string]any{"key_error": ""})
	is.Equal(s.awaitRequest(r, 1).path, "/root/"+b.ID+"/clear")
}

func TestEventsAndLogsContainNoSecrets(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	r := newReceiver(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/confidential-topic")
	s.device("d2", ann, "unifiedpush", "http://127.0.0.1:1/confidential-topic")
	chat := s.chat(ann, "chat")
	s.appendRequest(chat, "per_1", "ls")
	s.eventually("both failed", func() bool { return s.count(chat, events.NotificationFailed{}) == 2 })
	var stored strings.Builder
	_, err := s.log.Fold(t.Context(), events.ChatFilter(chat), 0, func(e events.Event) error {
		stored.Write(e.Data)
		return nil
	})
	is.NoErr(err)
	approve := token(t, buttons(t, r.requests()[0])["Approve"])
	for _, text := range []string{stored.String(), s.lines.String()} {
		expect.Lacks(t, text, "confidential")
		expect.Lacks(t, text, approve)
		expect.Contains(t, text, "127.0.0.1")
	}
}

func TestOwnRequestsArePushedAndDecided(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "chat")
	s.append(chat, events.PermissionRequested{Permission: "b1", Type: "budget",
		Message: "The chat has cost 1.00 of 1.00 today.", Metadata: []byte(`{"limit":1}`)})
	s.append(chat, events.PermissionReferred{Permission: "b1", Reason: "a budget is reached"})
	got := s.awaitRequest(r, 0)
	b := read(t, got.body)
	is.Equal([]string{b.Type, b.Title, b.Message}, []string{"permission", "Allow more spending",
		"The chat has cost 1.00 of 1.00 today.\na budget is reached\nChat: chat"})
	_, err := s.Act(t.Context(), token(t, buttons(t, got)["Approve"]), "")
	is.NoErr(err)
	is.Equal(s.count(chat, events.PermissionDecided{}), 1)
	is.Equal(s.awaitRequest(r, 1).method, http.MethodPut) // the withdrawal

	s.append(chat, events.PermissionRequested{Permission: "n1", Type: "network",
		Message: "May this reach a.example:443? npm install", Patterns: []string{"a.example:443"},
		Metadata: []byte(`{"host":"a.example","command":"npm install"}`)})
	s.append(chat, events.PermissionReferred{Permission: "n1", Reason: "no rule allows it"})
	got = s.awaitRequest(r, 2)
	is.Equal(read(t, got.body).Message, "May this reach a.example:443? npm install\nno rule allows it\nChat: chat")
	is.Equal(read(t, got.body).Title, "Connect to a.example:443")
	is.True(buttons(t, got)["Approve"] != "")

	keep := events.KeepMetadata{Quarantined: events.Quarantined{Item: "q1", Name: ".envrc", Kind: "file", Bytes: 6},
		Text: "ls -l\n", Command: "make"}
	for i, cut := range []bool{false, true} { // the rest must be read first, elsewhere
		id := fmt.Sprint("k", i)
		keep.Cut = cut
		s.append(chat, events.PermissionRequested{Permission: id, Type: events.KindKeep, Patterns: []string{".envrc"},
			Message: "A command created .envrc. Keep it?", Metadata: events.MustEncode(keep)})
		s.append(chat, events.PermissionReferred{Permission: id, Reason: "a person decides"})
		got = s.awaitRequest(r, 3+i)
		is.Equal(read(t, got.body).Title, "Keep .envrc?")
		is.Equal(read(t, got.body).Message, "A command created .envrc. Keep it? If you deny it, it is deleted.\n"+
			"  what it is: file, 6 bytes\n  created before this ended: make\n  in the quarantine: q1\n"+
			map[bool]string{true: "  Only its beginning is shown.\n"}[cut]+"  ls -l\na person decides\nChat: chat")
		is.Equal(buttons(t, got)["Approve"] == "", cut)
	}
}

func TestFiguresOfOneRequest(t *testing.T) {
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "chat")
	var took []time.Duration
	for i := range 50 {
		began := time.Now()
		s.appendRequest(chat, "per_"+events.NewID(), "ls")
		s.awaitRequest(r, i)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("ask to push sent: p50 %s, p90 %s", took[25], took[45])
}

// The owner of a chat cannot decide a request that is for administrators only.
func TestAdministratorsAreAskedAboutABudgetOfAllChats(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, owners, roots := newSystem(t), newReceiver(t, nil), newReceiver(t, nil)
	ann, root := s.user("ann", account.User), s.user("root", account.Admin)
	s.device("d1", ann, "unifiedpush", owners.URL+"/topic")
	s.device("d2", root, "unifiedpush", roots.URL+"/topic")
	chat := s.chat(ann, "ann's")
	s.append(chat, events.PermissionRequested{
		Permission: "more", Type: events.KindBudget, Patterns: []string{"daily"}, Message: "Allow 5 more?", Metadata: json.RawMessage(`{"administrators":true}`),
	})
	s.append(chat, events.PermissionReferred{Permission: "more"})
	got := s.awaitRequest(roots, 0)
	is.Equal(read(t, got.body).Title, "Allow more spending")
	_, err := s.Act(t.Context(), token(t, buttons(t, got)["Approve"]), "192.0.2.1")
	is.NoErr(err)
	is.Equal(s.count(chat, events.PermissionDecided{}), 1)
	s.awaitConsumer()
	is.Equal(len(owners.requests()), 0)
}
