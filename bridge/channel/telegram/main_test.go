package telegram_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	bridge "pocketcoder/bridge/channel"
	"pocketcoder/bridge/channel/telegram"
	"pocketcoder/bridge/channel/telegramtest"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/expect"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
	"pocketcoder/projections"
	"pocketcoder/projections/outgoing"
)

// system has a bot with a real log, real read models and real HTTP. Tests append the events of OpenCode.
type system struct {
	t        *testing.T
	log      *log.Log
	model    *projections.Model
	accounts *account.Accounts
	channels *channel.Channels
	records  *record.Records
	telegram *telegramtest.Server
	lines    expect.Buffer // the log output
	channel  string
	stop     func()
}

const (
	me       = int64(4711) // a person, and the private conversation with her
	stranger = int64(666)
	group    = int64(-100200)
)

func newSystem(t *testing.T) *system {
	t.Helper()
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	s := &system{t: t, log: eventstest.Open(t, nc), telegram: telegramtest.New(t)}
	secrets, err := secret.Open(t.Context(), nc, 1)
	check(t, err)
	s.model, err = projections.Open(t.Context(), expect.MemoryDir(t), s.log)
	check(t, err)
	s.accounts, err = account.Open(t.Context(), s.log, secrets)
	check(t, err)
	s.accounts.HashMemory = 64
	s.records = &record.Records{Log: s.log}
	s.channels = &channel.Channels{Log: s.log, Secrets: secrets, Records: s.records, Chats: &chat.Chats{Log: s.log},
		Accounts: s.accounts, Permissions: &permission.Permissions{Log: s.log}, AwaitReadModels: s.model.Wait,
		CountWaiting: func(ctx context.Context, chat string) (int, error) { return outgoing.Waiting(ctx, s.model.Model, chat) },
		IsSubmitted: func(ctx context.Context, message string) (bool, error) {
			return outgoing.Submitted(ctx, s.model.Model, message)
		}}
	stopModel := background(s.model.Run)
	t.Cleanup(func() { stopModel(); s.model.Close() })
	id, seq, err := s.channels.Save(t.Context(), record.Save{New: true, Command: handlers.Command{Actor: events.ActorSystem},
		Set: record.Fields(map[string]any{"name": "bot", "kind": channel.Telegram, "server": s.telegram.URL, "token": telegramtest.Token,
			"trigger": "poco"})})
	check(t, err)
	check(t, s.model.Wait(t.Context(), seq))
	s.channel = id
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

// start starts a new hub, as a restart does.
func (s *system) start() {
	hub := &bridge.Hub{Channels: s.channels, Model: s.model, Logger: slog.New(slog.NewTextHandler(&s.lines, nil)),
		URL: "https://code.example.org", RetryAfter: []time.Duration{5 * time.Millisecond},
		Connect: func(c channel.Channel, token string, l *slog.Logger) (bridge.Platform, error) {
			return telegram.New(c, token, true, l)
		}}
	s.stop = background(hub.Run)
}

func background(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); run(ctx) }()
	return func() { cancel(); <-done }
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// user creates an account.
func (s *system) user(name, role string) (id string) {
	s.t.Helper()
	id, seq, err := s.accounts.CreateAccount(s.t.Context(), account.CreateAccount{
		Command: handlers.Command{Actor: events.ActorSystem}, Email: name + "@example.org", Name: name, Role: role, Password: "correct horse battery"})
	check(s.t, err)
	check(s.t, s.model.Wait(s.t.Context(), seq))
	return id
}

// code creates a pairing code for an account.
func (s *system) code(user string) string {
	s.t.Helper()
	code, err := s.channels.CreateCode(s.t.Context(), channel.NewCode{Channel: "bot", User: user})
	check(s.t, err)
	return code.Code
}

// pair pairs a person in a conversation with an account, and returns the chat.
func (s *system) pair(place, from int64, user string) (chat string) {
	s.t.Helper()
	before := len(s.pairings())
	s.telegram.AwaitConfirmed(s.t, s.telegram.Say(place, from, "/start "+s.code(user)))
	all := s.pairings()
	if len(all) != before+1 {
		s.t.Fatalf("not paired: %+v", all)
	}
	s.telegram.AwaitText(s.t, "You are paired")
	return s.chatOf(place)
}

func (s *system) pairings() []channel.Pairing {
	s.t.Helper()
	all, err := s.channels.Pairings(s.t.Context())
	check(s.t, err)
	return all
}

// chatOf returns the chat of a conversation.
func (s *system) chatOf(place int64) string {
	s.t.Helper()
	all, err := record.All[struct{ Place, Chat string }](s.t.Context(), s.records, channel.Conversations)
	check(s.t, err)
	for _, r := range all {
		if r.Value.Place == fmt.Sprint(place) {
			return r.Value.Chat
		}
	}
	return ""
}

// say sends a text and waits until it is confirmed to Telegram.
func (s *system) say(place, from int64, text string) {
	s.t.Helper()
	s.telegram.AwaitConfirmed(s.t, s.telegram.Say(place, from, text))
}

// submitted returns the texts of the submitted messages of all chats, in order.
func (s *system) submitted() (texts []string) {
	s.t.Helper()
	_, err := s.log.Fold(s.t.Context(), events.ChatSubject("*", "message.submitted"), 0, func(e events.Event) error {
		d, err := events.Decode(e)
		for _, p := range d.(events.MessageSubmitted).Parts {
			texts = append(texts, p.Text+p.Filename)
		}
		return err
	})
	check(s.t, err)
	return texts
}

// append appends an event of our own about a chat.
func (s *system) append(chat string, d events.Data) {
	s.t.Helper()
	e, err := events.New(chat, events.ActorPolicy, d)
	check(s.t, err)
	s.store(e)
}

// appendOpenCode appends an OpenCode event of a chat.
func (s *system) appendOpenCode(chat, typ, properties string) {
	s.t.Helper()
	e, err := events.NewOpenCode(chat, "local", "evt_"+events.NewID(), -1,
		events.OpenCode{Type: typ, Properties: json.RawMessage(properties)})
	check(s.t, err)
	s.store(e)
}

func (s *system) store(e events.Event) {
	s.t.Helper()
	seq, err := s.log.Append(s.t.Context(), e)
	check(s.t, err)
	check(s.t, s.model.Wait(s.t.Context(), seq))
}

// answer appends a finished answer of the assistant.
func (s *system) answer(chat string, n int, text, end string) {
	s.t.Helper()
	session := "ses_" + chat
	s.append(chat, events.SessionBound{Session: session, Directory: "/w"})
	s.appendOpenCode(chat, "message.updated", fmt.Sprintf(`{"sessionID":%q,"info":{"id":"msg_%d","role":"assistant"}}`, session, n))
	if text != "" {
		s.appendOpenCode(chat, "message.part.updated", fmt.Sprintf(`{"sessionID":%q,"part":{"id":"prt_%d","messageID":"msg_%d","type":"text","text":%q}}`, session, n, n, text))
	}
	s.appendOpenCode(chat, "message.updated", fmt.Sprintf(`{"sessionID":%q,"info":{"id":"msg_%d","role":"assistant","time":{"completed":5}%s}}`, session, n, end))
}

const finished = `,"finish":"stop"`

// request appends a permission request for a command, which the policy refers to a person.
func (s *system) request(chat, id, command string) {
	s.t.Helper()
	metadata, _ := json.Marshal(map[string]string{"command": command})
	s.append(chat, events.SessionBound{Session: "ses_" + chat, Directory: "/w"})
	s.appendOpenCode(chat, events.PermissionAsked, `{"id":"`+id+`","sessionID":"ses_`+chat+
		`","permission":"bash","patterns":["x"],"metadata":`+string(metadata)+`,"tool":{"messageID":"msg_1","callID":"call_`+id+`"}}`)
	s.append(chat, events.PermissionReferred{Permission: id, Reason: "no rule allows it", Cwd: "/workspace"})
}

// decisions returns the decisions about requests in a chat, each with its actor.
func (s *system) decisions(chat string) (all []string) {
	s.t.Helper()
	_, err := s.log.Fold(s.t.Context(), events.ChatSubject(chat, "permission.decided"), 0, func(e events.Event) error {
		d, err := events.Decode(e)
		one := d.(events.PermissionDecided)
		all = append(all, fmt.Sprintf("%s %s %s", one.Permission, one.Decision, e.Actor))
		return err
	})
	check(s.t, err)
	return all
}

// channelEvents returns the kinds of the events about outgoing messages in a chat, without their prefix.
func (s *system) channelEvents(chat string) string {
	s.t.Helper()
	var kinds []string
	_, err := s.log.Fold(s.t.Context(), events.ChatSubject(chat, "channel.*"), 0, func(e events.Event) error {
		kinds = append(kinds, strings.TrimPrefix(e.Subject.Kind, "channel."))
		return nil
	})
	check(s.t, err)
	return strings.Join(kinds, " ")
}

// reasons returns why messages of a chat failed.
func (s *system) reasons(chat string) (all []string) {
	s.t.Helper()
	subject := events.ChatSubject(chat, events.ChannelFailed{}.Kind())
	_, err := s.log.Fold(s.t.Context(), subject, 0, func(e events.Event) error {
		d, err := events.Decode(e)
		all = append(all, d.(events.ChannelFailed).Reason)
		return err
	})
	check(s.t, err)
	return all
}

func count(all []telegramtest.Message, text string) int {
	return len(slices.DeleteFunc(all, func(m telegramtest.Message) bool { return !strings.Contains(m.Text, text) }))
}
