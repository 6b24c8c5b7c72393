// Package channeltest starts a channel with a real log, real read models and a real hub. Tests connect it to a server
// that stands for a messenger, and append the events of OpenCode. The servers are:
//
//	Telegram    speaks the part of the Bot API that a bot needs, https://core.telegram.org/bots/api. An update is repeated
//	            until a request for updates has a larger offset. A message that Telegram would refuse is refused
//	MailServer  has one mailbox, that of the assistant: IMAP over go-imap's memory store, and SMTP over go-smtp. A mail
//	            remains unseen until a client marks it as seen. What the assistant sends is parsed as mail
package channeltest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	bridge "pocketcoder/bridge/channel"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// System has one channel.
type System struct {
	T        *testing.T
	Log      *log.Log
	Model    *projections.Model
	Accounts *account.Accounts
	Channels *channel.Channels
	Records  *record.Records
	Lines    expect.Buffer // the log output
	Channel  string        // id
	Stop     func()        // stops the hub
	name     string        // of the channel
	connect  func(c channel.Channel, token string, l *slog.Logger) (bridge.Platform, error)
}

// Finished ends an answer of the assistant.
const Finished = `,"finish":"stop"`

// ToolCalls ends a step of the assistant after which its turn goes on.
const ToolCalls = `,"finish":"tool-calls"`

// New starts a system whose channel has some fields. connect makes its platform.
func New(t *testing.T, fields map[string]any,
	connect func(c channel.Channel, token string, l *slog.Logger) (bridge.Platform, error)) *System {
	t.Helper()
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	s := &System{T: t, Log: eventstest.Open(t, nc), name: fields["name"].(string), connect: connect}
	secrets, err := secret.Open(t.Context(), nc, 1)
	check(t, err)
	s.Model, err = projections.Open(t.Context(), expect.MemoryDir(t), s.Log)
	check(t, err)
	s.Accounts, err = account.Open(t.Context(), s.Log, secrets)
	check(t, err)
	s.Accounts.HashMemory = 64
	s.Records = recordtype.Open(s.Log, nil)
	s.Records.Secrets = secrets
	s.Channels = &channel.Channels{Log: s.Log, Secrets: secrets, Records: s.Records, Chats: &chat.Chats{Log: s.Log},
		Accounts: s.Accounts, Decide: (&permission.Permissions{Log: s.Log}).Decide, AwaitReadModels: s.Model.Wait,
		CountWaiting: func(ctx context.Context, chat string) (waiting, held int, err error) {
			return s.Model.CountWaiting(ctx, chat)
		},
		IsSubmitted: func(ctx context.Context, message string) (bool, error) {
			return s.Model.IsSubmitted(ctx, message)
		}}
	t.Cleanup(func() { s.Model.Close() })
	expect.Background(t, s.Model.Run)
	id, seq, err := s.Records.Save(t.Context(), record.Save{New: true, Collection: channel.Collection,
		Command: handlers.Command{Actor: events.ActorSystem}, Set: record.Fields(fields)})
	check(t, err)
	check(t, s.Model.Wait(t.Context(), seq))
	s.Channel = id
	s.Start()
	return s
}

// Start starts a new hub, as a restart does.
func (s *System) Start() {
	hub := &bridge.Hub{Channels: s.Channels, Model: s.Model, Logger: slog.New(slog.NewTextHandler(&s.Lines, nil)),
		URL: "https://code.example.org", RetryAfter: []time.Duration{5 * time.Millisecond},
		Connect: s.connect}
	s.Stop = expect.Background(s.T, hub.Run)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// User creates an account.
func (s *System) User(name, role string) (id string) {
	s.T.Helper()
	id, seq, err := s.Accounts.CreateAccount(s.T.Context(), account.CreateAccount{
		Command: handlers.Command{Actor: events.ActorSystem}, Email: name + "@example.org", Name: name, Role: role,
		Password: "correct horse battery"})
	check(s.T, err)
	check(s.T, s.Model.Wait(s.T.Context(), seq))
	return id
}

// Code creates a pairing code for an account.
func (s *System) Code(user string) string {
	s.T.Helper()
	code, err := s.Channels.CreateCode(s.T.Context(), channel.NewCode{Channel: s.name, User: user})
	check(s.T, err)
	return code.Code
}

func (s *System) Pairings() []channel.Pairing {
	s.T.Helper()
	all, err := s.Channels.Pairings(s.T.Context())
	check(s.T, err)
	return all
}

func (s *System) ChatOf(place any) string {
	s.T.Helper()
	all, err := record.All[struct{ Place, Chat string }](s.T.Context(), s.Records, channel.Conversations)
	check(s.T, err)
	for _, r := range all {
		if r.Value.Place == fmt.Sprint(place) {
			return r.Value.Chat
		}
	}
	return ""
}

// Submitted returns the texts of the submitted messages of all chats, in order.
func (s *System) Submitted() (texts []string) {
	s.T.Helper()
	_, err := s.Log.Fold(s.T.Context(), events.ChatSubject("*", "message.submitted"), 0, func(e events.Event) error {
		d, err := events.Decode(e)
		for _, p := range d.(events.MessageSubmitted).Parts {
			texts = append(texts, p.Text+p.Filename)
		}
		return err
	})
	check(s.T, err)
	return texts
}

// Append appends an event of our own about a chat.
func (s *System) Append(chat string, d events.Data) {
	s.T.Helper()
	e, err := events.New(chat, events.ActorPolicy, d)
	check(s.T, err)
	s.store(e)
}

// AppendOpenCode appends an OpenCode event of a chat.
func (s *System) AppendOpenCode(chat, typ, properties string) {
	s.T.Helper()
	e, err := events.NewOpenCode(chat, "local", "evt_"+events.NewID(), -1,
		events.OpenCode{Type: typ, Properties: json.RawMessage(properties)})
	check(s.T, err)
	s.store(e)
}

func (s *System) store(e events.Event) {
	s.T.Helper()
	seq, err := s.Log.Append(s.T.Context(), e)
	check(s.T, err)
	check(s.T, s.Model.Wait(s.T.Context(), seq))
}

// Answer appends a finished answer of the assistant, or a step of one that ends with ToolCalls.
func (s *System) Answer(chat string, n int, text, end string) {
	s.T.Helper()
	session := "ses_" + chat
	s.Append(chat, events.SessionBound{Session: session, Directory: "/w"})
	status := func(now string) {
		s.AppendOpenCode(chat, "session.status", fmt.Sprintf(`{"sessionID":%q,"status":{"type":%q}}`, session, now))
	}
	status("busy")
	s.AppendOpenCode(chat, "message.updated",
		fmt.Sprintf(`{"sessionID":%q,"info":{"id":"msg_%d","role":"assistant"}}`, session, n))
	if text != "" {
		s.AppendOpenCode(chat, "message.part.updated", fmt.Sprintf(
			`{"sessionID":%q,"part":{"id":"prt_%d","messageID":"msg_%d","type":"text","text":%q}}`, session, n, n, text))
	}
	s.AppendOpenCode(chat, "message.part.updated", fmt.Sprintf(
		`{"sessionID":%q,"part":{"id":"prt_%d_end","messageID":"msg_%d","type":"step-finish"}}`, session, n, n))
	s.AppendOpenCode(chat, "message.updated", fmt.Sprintf(
		`{"sessionID":%q,"info":{"id":"msg_%d","role":"assistant","time":{"completed":5}%s}}`, session, n, end))
	if end != ToolCalls {
		status("idle")
	}
}

// SendFile appends a file that the assistant sends, after an answer with the number n.
func (s *System) SendFile(chat string, n int, name, content, caption string) (file string) {
	s.T.Helper()
	blob, err := s.Log.Blobs.PutByHash(s.T.Context(), []byte(content))
	check(s.T, err)
	file = events.NewID()
	s.Append(chat, events.FileSent{File: file, Session: "ses_" + chat, MessageID: fmt.Sprint("msg_", n),
		Part: fmt.Sprint("prt_", n), Path: name, Caption: caption, Mime: "text/plain", Content: blob})
	return file
}

// Request appends a permission request for a command, which the policy refers to a person.
func (s *System) Request(chat, id, command string) {
	s.T.Helper()
	metadata, _ := json.Marshal(map[string]string{"command": command})
	s.Append(chat, events.SessionBound{Session: "ses_" + chat, Directory: "/w"})
	s.request(chat, id, "bash", string(metadata))
}

// RequestTool appends a permission request for a tool of PocketCoder. The model calls the tool with some arguments, a
// JSON object; "" stands for arguments that OpenCode has not reported.
func (s *System) RequestTool(chat, id, tool, arguments string) {
	s.T.Helper()
	s.Append(chat, events.SessionBound{Session: "ses_" + chat, Directory: "/w"})
	s.AppendOpenCode(chat, "message.updated",
		fmt.Sprintf(`{"sessionID":%q,"info":{"id":"msg_1","role":"assistant"}}`, "ses_"+chat))
	if arguments != "" {
		s.AppendOpenCode(chat, "message.part.updated", fmt.Sprintf(`{"sessionID":%q,"part":{"id":"prt_%[2]s",
			"messageID":"msg_1","type":"tool","callID":"call_%[2]s","tool":%[3]q,"state":{"status":"running","input":%[4]s}}}`,
			"ses_"+chat, id, tool, arguments))
	}
	s.request(chat, id, tool, "{}")
}

func (s *System) request(chat, id, permission, metadata string) {
	s.T.Helper()
	s.AppendOpenCode(chat, events.PermissionAsked, `{"id":"`+id+`","sessionID":"ses_`+chat+
		`","permission":"`+permission+`","patterns":["*"],"metadata":`+metadata+`,"tool":{"messageID":"msg_1",
		"callID":"call_`+id+`"}}`)
	s.Append(chat, events.PermissionReferred{Permission: id, Reason: "no rule allows it", Cwd: "/workspace"})
}

// Decisions returns the decisions about requests in a chat, each with its actor.
func (s *System) Decisions(chat string) (all []string) {
	s.T.Helper()
	_, err := s.Log.Fold(s.T.Context(), events.ChatSubject(chat, "permission.decided"), 0, func(e events.Event) error {
		d, err := events.Decode(e)
		one := d.(events.PermissionDecided)
		all = append(all, fmt.Sprintf("%s %s %s", one.Permission, one.Decision, e.Actor))
		return err
	})
	check(s.T, err)
	return all
}

// ChannelEvents returns the kinds of the events about outgoing messages in a chat, without their prefix.
func (s *System) ChannelEvents(chat string) string {
	s.T.Helper()
	var kinds []string
	_, err := s.Log.Fold(s.T.Context(), events.ChatSubject(chat, "channel.*"), 0, func(e events.Event) error {
		kinds = append(kinds, strings.TrimPrefix(e.Subject.Kind, "channel."))
		return nil
	})
	check(s.T, err)
	return strings.Join(kinds, " ")
}

// Reasons returns why messages of a chat failed.
func (s *System) Reasons(chat string) (all []string) {
	s.T.Helper()
	subject := events.ChatSubject(chat, events.ChannelFailed{}.Kind())
	_, err := s.Log.Fold(s.T.Context(), subject, 0, func(e events.Event) error {
		d, err := events.Decode(e)
		all = append(all, d.(events.ChannelFailed).Reason)
		return err
	})
	check(s.T, err)
	return all
}
