package push_test

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/bridge/push"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/projectionstest"
)

func TestMain(m *testing.M) { expect.Run(m) }

// system sends notifications with a real log, real read models and real HTTP. Tests append the events of OpenCode.
type system struct {
	t           testing.TB
	conn        *nats.Conn
	log         *log.Log
	secrets     *secret.Store
	model       *projections.Model
	accounts    *account.Accounts
	chats       *chat.Chats
	records     *record.Records
	permissions *permission.Permissions
	vapid       push.VAPID
	lines       expect.Buffer // the log output
	present     atomic.Value  // "user/chat" of the viewer
	receiver    *receiver     // optional

	*push.Push
	stop func()
}

const (
	baseURL  = "https://code.example.org"
	modelKey = "sk-live-0123456789"
)

func newSystem(t testing.TB, change ...func(*push.Push)) *system {
	t.Helper()
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	s := &system{t: t, conn: nc, log: eventstest.Open(t, nc, modelKey)}
	s.present.Store("")
	var err error
	s.secrets, err = secret.Open(t.Context(), nc, 1)
	check(t, err)
	s.model, err = projectionstest.Open(t.Context(), expect.MemoryDir(t), s.log)
	check(t, err)
	s.accounts, err = account.Open(t.Context(), s.log, s.secrets)
	check(t, err)
	s.accounts.HashMemory = 64
	s.chats, s.records, s.permissions = &chat.Chats{Log: s.log}, recordtype.Open(s.log, nil),
		&permission.Permissions{Log: s.log}
	s.vapid, err = push.LoadVAPID(filepath.Join(t.TempDir(), "webpush.json"))
	check(t, err)
	t.Cleanup(func() { s.model.Close() })
	expect.Background(t, s.model.Run)
	s.start(change...)
	return s
}

// start starts a new Push, as a restart does.
func (s *system) start(change ...func(*push.Push)) {
	s.Push = &push.Push{
		Log: s.log, Secrets: s.secrets, Model: s.model, Accounts: s.accounts, Records: s.records, Decide: s.permissions.Decide,
		Logger:  slog.New(slog.NewTextHandler(&s.lines, nil)),
		Present: func(user, chat string) bool { return s.present.Load() == user+"/"+chat },
		Sender:  push.Sender{URL: baseURL, VAPID: s.vapid, AllowPrivate: true}, RetryAfter: []time.Duration{5 * time.Millisecond, 10 * time.Millisecond},
		AwayAfter: 30 * time.Millisecond,
	}
	for _, f := range change {
		f(s.Push)
	}
	s.stop = expect.Background(s.t, s.Push.Run)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *system) eventually(what string, is func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !is() {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within a minute: %s; logged: %s", what, s.lines.String())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// user creates an account.
func (s *system) user(name, role string) (id string) {
	s.t.Helper()
	id, seq, err := s.accounts.CreateAccount(s.t.Context(), account.CreateAccount{
		Command: handlers.Command{Actor: events.ActorSystem}, Email: name + "@example.org", Name: name, Role: role, Password: "correct horse battery",
	})
	check(s.t, err)
	check(s.t, s.model.Wait(s.t.Context(), seq))
	return id
}

// save stores a configuration record.
func (s *system) save(collection, id string, fields map[string]any) {
	s.t.Helper()
	set := map[string]json.RawMessage{}
	for name, v := range fields {
		set[name], _ = json.Marshal(v)
	}
	_, found, err := s.record(collection, id)
	check(s.t, err)
	_, seq, err := s.records.Save(s.t.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem},
		Collection: collection, Record: id, Set: set, New: !found})
	check(s.t, err)
	check(s.t, s.model.Wait(s.t.Context(), seq))
}

func (s *system) record(collection, id string) (projections.Config, bool, error) {
	all, err := s.model.Config(s.t.Context(), collection)
	for _, c := range all {
		if c.RecordID == id {
			return c, true, err
		}
	}
	return projections.Config{}, false, err
}

// device registers a device of an account.
func (s *system) device(id, user, service, token string) {
	s.t.Helper()
	s.save("devices", id, map[string]any{"user": user, "name": "Phone of " + user, "push_service": service,
		"push_token": token, "is_active": true})
}

// chat creates a chat with a session.
func (s *system) chat(owner, title string) string {
	s.t.Helper()
	id, _, err := s.chats.Create(s.t.Context(), chat.Create{Command: handlers.Command{Actor: events.ActorSystem},
		Title: title, User: owner})
	check(s.t, err)
	s.append(id, events.SessionBound{Session: "ses_" + id, Directory: "/w"})
	return id
}

// append appends an event of our own about a chat.
func (s *system) append(chat string, d events.Data) uint64 {
	s.t.Helper()
	e, err := events.New(chat, events.ActorPolicy, d)
	check(s.t, err)
	return s.store(e)
}

// appendOpenCode appends an OpenCode event of a chat.
func (s *system) appendOpenCode(chat, typ, properties string) uint64 {
	s.t.Helper()
	e, err := events.NewOpenCode(chat, "local", "evt_"+events.NewID(), -1,
		events.OpenCode{Type: typ, Properties: json.RawMessage(properties)})
	check(s.t, err)
	return s.store(e)
}

func (s *system) store(e events.Event) uint64 {
	s.t.Helper()
	seq, err := s.log.Append(s.t.Context(), e)
	check(s.t, err)
	check(s.t, s.model.Wait(s.t.Context(), seq))
	return seq
}

// appendRequest appends a permission request for a command, which the policy refers to a person.
func (s *system) appendRequest(chat, id, command string) {
	s.t.Helper()
	metadata, _ := json.Marshal(map[string]string{"command": command})
	s.appendOpenCode(chat, events.PermissionAsked, `{"id":"`+id+`","sessionID":"ses_`+chat+
		`","permission":"bash","patterns":["x"],"metadata":`+string(metadata)+`,"tool":{"messageID":"msg_1","callID":"call_`+
		id+`"}}`)
	s.append(chat, events.PermissionReferred{Permission: id, Reason: "no rule allows it", Cwd: "/workspace"})
}

// decide decides a request on another device.
func (s *system) decide(chat, id string, d events.Decision) {
	s.t.Helper()
	seq, err := s.permissions.Decide(s.t.Context(),
		permission.Decide{Command: handlers.Command{Actor: events.UserActor("other")}, Chat: chat, Permission: id,
			Decision: d})
	check(s.t, err)
	check(s.t, s.model.Wait(s.t.Context(), seq))
}

// notificationsAbout returns the notification events about a subject.
func (s *system) notificationsAbout(about string) (all []events.Data) {
	s.t.Helper()
	_, err := s.log.Fold(s.t.Context(), about+".notification.*", 0, func(e events.Event) error {
		d, err := events.Decode(e)
		all = append(all, d)
		return err
	})
	check(s.t, err)
	return all
}

// kinds returns the kinds of the notification events, without their prefix.
func (s *system) kinds(about string) (kinds []string) {
	for _, d := range s.notificationsAbout(about) {
		kinds = append(kinds, strings.TrimPrefix(d.Kind(), "notification."))
	}
	return kinds
}

// awaitKinds waits until the notification events have these kinds.
func (s *system) awaitKinds(about string, kinds ...string) {
	s.t.Helper()
	want := strings.Join(kinds, " ")
	defer func() {
		if s.t.Failed() {
			s.t.Logf("%s has %v", about, s.notificationsAbout(about))
		}
	}()
	s.eventually(about+" has "+want, func() bool { return strings.Join(s.kinds(about), " ") == want })
}

// awaitConsumer waits until the consumer has handled every event of the log.
func (s *system) awaitConsumer() {
	s.t.Helper()
	// A last event of a chat without people shows that all earlier events were handled.
	e, err := events.New("nobody", events.ActorSystem, events.TurnLost{Session: "ses_none"})
	check(s.t, err)
	seq := s.store(e)
	s.eventually("everything was looked at", func() bool {
		done, err := s.log.LastAcked(s.t.Context(), push.Consumer)
		check(s.t, err)
		return done >= seq
	})
}

// forgetConsumer deletes the durable consumer.
func (s *system) forgetConsumer() {
	s.t.Helper()
	eventstest.DeleteConsumer(s.t, s.conn, push.Consumer)
}

// redeliver has all events delivered to the consumer again.
func (s *system) redeliver() {
	s.t.Helper()
	js, err := jetstream.New(s.conn)
	check(s.t, err)
	_, err = js.ResetConsumerToSequence(s.t.Context(), "EVENTS", push.Consumer, 1)
	check(s.t, err)
}
