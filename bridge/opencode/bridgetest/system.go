package bridgetest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/ingest"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/budget"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/projectionstest"
)

// System holds the real log, read model and handlers, and OpenCode as a script.
type System struct {
	*OpenCode
	NC          *nats.Conn
	Log         *log.Log
	Model       *projections.Model
	Chats       *chat.Chats
	Records     *record.Records
	Permissions *permission.Permissions
	Budgets     *budget.Budgets

	// Refuse makes the log refuse commands with the error that it returns, unless it is nil. Store it before or while the
	// system runs.
	Refuse atomic.Pointer[func() error]

	server  *server.Server
	models  string   // directory of the read models
	secrets []string // that the log conceals
	logConn *nats.Conn
	close   func() // ends the read models
}

// NewSystem opens a log, and everything over it. The log conceals the secrets.
func NewSystem(t testing.TB, secrets ...string) *System {
	t.Helper()
	s := &System{OpenCode: newOpenCode(t), server: eventstest.Server(t, expect.MemoryDir(t)), models: expect.MemoryDir(t),
		secrets: secrets}
	s.open()
	return s
}

// open opens the log and everything over it.
func (s *System) open() {
	s.NC, s.logConn = eventstest.Conn(s.T, s.server), eventstest.Conn(s.T, s.server)
	options := log.DefaultOptions
	options.Refuse = func() error {
		if refuse := s.Refuse.Load(); refuse != nil {
			return (*refuse)()
		}
		return nil
	}
	var err error
	s.Log, err = log.Open(s.T.Context(), s.logConn, options, secret.NewRedactor(s.secrets...))
	s.Must(err)
	s.Chats, s.Records, s.Permissions = &chat.Chats{Log: s.Log}, recordtype.Open(s.Log, recordtype.Machine{}),
		&permission.Permissions{Log: s.Log}
	s.Budgets = &budget.Budgets{Records: s.Records, Permissions: s.Permissions}
	s.Model, err = projectionstest.Open(s.T.Context(), s.models, s.Log)
	s.Must(err)
	ctx, cancel := context.WithCancel(s.T.Context())
	done, model := make(chan struct{}), s.Model
	go func() { defer close(done); model.Run(ctx) }()
	s.close = sync.OnceFunc(func() { cancel(); <-done; model.Close() })
	s.T.Cleanup(s.close)
}

// Killed does to this system what a kill of its process does, and returns the system of the next process: the same
// log, read models and OpenCode, and nothing that was in memory. From now on, nothing of the old system reaches the
// log. What runs must be stopped by stop, which is called when that is so.
func (s *System) Killed(stop func()) *System {
	s.T.Helper()
	s.logConn.Close()
	s.NC.Close()
	stop()
	s.close()
	next := &System{OpenCode: s.OpenCode, server: s.server, models: s.models, secrets: s.secrets}
	next.open()
	return next
}

// Lost returns the system of the next process after the log has lost the events from a sequence on, and the sequence
// that follows those that are left. OpenCode is the same. What runs must be stopped.
func (s *System) Lost(from uint64) (next *System, after uint64) {
	s.T.Helper()
	var left []events.Event
	for _, e := range s.Events(events.AllEvents) {
		if e.Seq < from {
			left = append(left, e)
		}
	}
	next = &System{OpenCode: s.OpenCode, server: eventstest.Server(s.T, expect.MemoryDir(s.T)),
		models: expect.MemoryDir(s.T), secrets: s.secrets}
	next.open()
	last, err := next.Log.AppendAll(s.T.Context(), left)
	s.Must(err)
	return next, last + 1
}

// Running is an outbox and its ingest, with the loops that run them.
type Running struct {
	*outbox.Outbox
	t      testing.TB
	Stop   func()
	Logged *expect.Buffer
}

// Outbox makes an outbox and its ingest, which do not run yet, and returns what they log.
func (s *System) Outbox() (*outbox.Outbox, *expect.Buffer) {
	logged := &expect.Buffer{}
	api := client.New(s.URL, "secret")
	in := &ingest.Ingest{
		Engine: chat.DefaultEngine, Directory: "/workspace", Log: s.Log, Model: s.Model,
		Logger: slog.New(slog.NewTextHandler(logged, nil)), Pause: 5 * time.Millisecond, IdleLimit: 5 * time.Millisecond,
		Client: func(context.Context) (*client.Client, error) { return api, nil }, Changed: func() {},
	}
	b := &outbox.Outbox{
		Ingest: in, Engine: in.Engine, Directory: in.Directory, Log: s.Log, Model: s.Model, Logger: in.Logger,
		Pause: in.Pause, Chats: s.Chats, Records: s.Records, Permissions: s.Permissions, Limits: s.Budgets,
		Rules:      permission.Gate{Permissions: s.Permissions, Records: s.Records}.RulesOf,
		RetryAfter: []time.Duration{time.Millisecond, time.Millisecond},
	}
	in.Resend = b.Resend
	return b, logged
}

// Start runs a new outbox and its ingest, as after a start of the whole system, until it is connected or stopped.
func (s *System) Start(change ...func(*outbox.Outbox)) *Running {
	s.T.Helper()
	b, logged := s.Outbox()
	for _, c := range change {
		c(b)
	}
	last, err := s.Log.Last(s.T.Context())
	s.Must(err)
	s.Must(s.Model.Wait(s.T.Context(), last))
	s.Must(b.Ingest.Load(s.T.Context()))
	ctx, cancel := context.WithCancel(s.T.Context())
	var running sync.WaitGroup
	spending := &outbox.Spending{Log: b.Log, Model: b.Model, Chats: b.Chats, Limits: b.Limits, Logger: b.Logger}
	for name, work := range map[string]func(context.Context) error{
		"run": b.Ingest.Run, "carry out": b.Run, "budgets": spending.Run,
	} {
		running.Go(func() {
			if err := work(ctx); ctx.Err() == nil && !s.logConn.IsClosed() {
				s.T.Errorf("%s ended: %v", name, err)
			}
		})
	}
	stop := sync.OnceFunc(func() { cancel(); running.Wait() })
	s.T.Cleanup(stop)
	return &Running{b, s.T, stop, logged}
}

// Connected returns a system with an outbox that is connected.
func Connected(t testing.TB) (*System, *Running) {
	t.Helper()
	s := NewSystem(t)
	return s, s.Start().Connected()
}

// Connected waits until OpenCode is connected and reconciled.
func (r *Running) Connected() *Running {
	r.t.Helper()
	expect.Eventually(r.t, "OpenCode is connected", func() bool { return r.Ingest.Condition().Connected })
	return r
}

// Must ends the test if there is an error.
func (s *System) Must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// Drained waits until everything streamed so far has been taken, and the read model shows it.
func (s *System) Drained() {
	s.T.Helper()
	id := events.NewID()
	s.Say(Plain("test.marker", fmt.Sprintf(`{"id":%q}`, id)))
	expect.Eventually(s.T, "everything streamed is taken", func() bool {
		found := false
		for _, e := range s.Events(events.EngineOpenCodeSubject(chat.DefaultEngine, "test.marker")) {
			found = found || bytes.Contains(e.Data, []byte(id))
		}
		return found
	})
	last, err := s.Log.Last(s.T.Context())
	s.Must(err)
	s.Must(s.Model.Wait(s.T.Context(), last))
}

// Reconnected cuts the stream, lets something happen meanwhile, and waits until OpenCode is connected again.
func (s *System) Reconnected(r *Running, meanwhile func()) {
	s.T.Helper()
	s.Disconnect()
	expect.Eventually(s.T, "the cut is noticed", func() bool { return !r.Ingest.Condition().Connected })
	meanwhile()
	s.Reconnect()
	r.Connected()
	s.Drained()
}

// Events are those in the log that match the filter.
func (s *System) Events(filter string) (all []events.Event) {
	s.T.Helper()
	_, err := s.Log.Fold(s.T.Context(), filter, 0, func(e events.Event) error {
		if _, typ := e.Subject.OpenCodeType(); !typ || e.Subject.Kind != "opencode.test.marker" ||
			filter != events.AllEvents {
			all = append(all, e)
		}
		return e.Malformed
	})
	s.Must(err)
	return all
}

// Facts are the bodies of a chat's events of one kind of our own.
func Facts[D events.Data](s *System, chat string) (all []D) {
	s.T.Helper()
	for _, e := range s.Events(events.ChatSubject(chat, (*new(D)).Kind())) {
		d, err := events.Decode(e)
		s.Must(err)
		all = append(all, d.(D))
	}
	return all
}

// OpenCodeEvents are a chat's OpenCode events of one type.
func (s *System) OpenCodeEvents(chat, typ string) []events.Event {
	s.T.Helper()
	return s.Events(events.ChatOpenCodeSubject(chat, typ))
}

func (s *System) ChatOf(session string) string {
	s.T.Helper()
	row, known, err := s.Model.Session(s.T.Context(), session)
	s.Must(err)
	if !known {
		s.T.Fatalf("session %s is not known", session)
	}
	return row.Chat
}

// Session makes a session in OpenCode that no chat asked for.
func (s *System) Session(id, parent string) {
	info := fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"parentID":%q,"directory":"/workspace","title":"t"}}`, id, id,
		parent)
	s.Happen(s.Durably(id, "session.created", info)...)
}

// Chat makes a chat and submits messages to it.
func (s *System) Chat(messages ...string) string {
	s.T.Helper()
	chat, _, err := s.Chats.Create(s.T.Context(), chat.Create{Title: "t", User: "u1"})
	s.Must(err)
	s.Submit(chat, messages...)
	return chat
}

func (s *System) Submit(chatID string, messages ...string) {
	s.T.Helper()
	for _, text := range messages {
		_, _, err := s.Chats.SubmitMessage(s.T.Context(), chat.SubmitMessage{
			Command: handlers.Command{Actor: events.UserActor("u1")}, Chat: chatID, Parts: []events.Part{{Type: "text", Text: text}},
		})
		s.Must(err)
	}
}

// Observer opens the log as another process does. No kill of the system ends it.
func (s *System) Observer() *log.Log {
	return eventstest.Open(s.T, eventstest.Conn(s.T, s.server), s.secrets...)
}
