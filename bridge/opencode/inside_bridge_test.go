package opencode

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/expect"
	"pocketcoder/handlers"
	"pocketcoder/handlers/budget"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
	"pocketcoder/projections"
)

// system is the real log, read model and handlers, and OpenCode as a script.
type system struct {
	*outside
	nc          *nats.Conn
	log         *log.Log
	model       *projections.Model
	chats       *chat.Chats
	records     *record.Records
	permissions *permission.Permissions
	budgets     *budget.Budgets
}

func newSystem(t testing.TB, secrets ...string) *system {
	t.Helper()
	server := eventstest.Server(t, t.TempDir())
	s := &system{outside: newOutside(t), nc: eventstest.Conn(t, server), log: eventstest.Open(t, eventstest.Conn(t, server), secrets...)}
	s.chats, s.records, s.permissions = &chat.Chats{Log: s.log}, &record.Records{Log: s.log}, &permission.Permissions{Log: s.log}
	s.budgets = &budget.Budgets{Records: s.records, Permissions: s.permissions}
	var err error
	if s.model, err = projections.Open(t.Context(), t.TempDir(), s.log); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.model.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; s.model.Close() })
	return s
}

// bridge connects one OpenCode with the log.
type bridge struct {
	*Ingest
	*Outbox
}

// running is a bridge with its workers.
type running struct {
	*bridge
	t    testing.TB
	stop func()
	said *said
}

// said is what the bridge wrote to its logger.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// bridge makes a bridge that does not run yet.
func (s *system) bridge() (*bridge, *said) {
	words := &said{}
	const engine, directory, pause = chat.DefaultEngine, "/workspace", 5 * time.Millisecond
	logger := slog.New(slog.NewTextHandler(words, nil))
	b := &bridge{
		&Ingest{
			Engine: engine, Directory: directory, Log: s.log, Model: s.model, Logger: logger,
			Client: func(context.Context) (*client.Client, error) { return client.New(s.url, "secret"), nil },
			Pause:  pause, Changed: func() {},
		},
		&Outbox{
			Engine: engine, Directory: directory, Log: s.log, Model: s.model, Logger: logger,
			Chats: s.chats, Records: s.records, Permissions: s.permissions, Limits: s.budgets,
			RetryAfter: []time.Duration{time.Millisecond, time.Millisecond}, Pause: pause,
		},
	}
	b.Outbox.Ingest, b.Ingest.Resend = b.Ingest, b.Outbox.Resend
	return b, words
}

// start runs a new bridge, as after a start of the whole system, until it is connected or stopped.
func (s *system) start(change ...func(*bridge)) *running {
	s.t.Helper()
	b, words := s.bridge()
	for _, c := range change {
		c(b)
	}
	last, err := s.log.Last(s.t.Context())
	s.must(err)
	s.must(s.model.Wait(s.t.Context(), last))
	s.must(b.Load(s.t.Context()))
	ctx, cancel := context.WithCancel(s.t.Context())
	var workers sync.WaitGroup
	for name, work := range map[string]func(context.Context) error{
		"run": b.Run, "deliver": b.Deliver, "reply": b.Reply, "abort": b.Abort, "revert": b.Revert, "fork": b.Fork, "budgets": b.Budgets,
	} {
		workers.Go(func() {
			if err := work(ctx); ctx.Err() == nil {
				s.t.Errorf("%s ended: %v", name, err)
			}
		})
	}
	stop := sync.OnceFunc(func() { cancel(); workers.Wait() })
	s.t.Cleanup(stop)
	r := &running{b, s.t, stop, words}
	return r
}

// connected waits until the bridge is connected and reconciled.
func (r *running) connected() *running {
	r.t.Helper()
	expect.Eventually(r.t, "the bridge is connected", func() bool { return r.Condition().Connected })
	return r
}

func (s *system) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// drained waits until everything streamed so far has been taken, and the read model shows it.
func (s *system) drained() {
	s.t.Helper()
	id := events.NewID()
	s.say(plain("test.marker", fmt.Sprintf(`{"id":%q}`, id)))
	expect.Eventually(s.t, "everything streamed is taken", func() bool {
		found := false
		for _, e := range s.events(events.EngineOpenCodeSubject(chat.DefaultEngine, "test.marker")) {
			found = found || bytes.Contains(e.Data, []byte(id))
		}
		return found
	})
	last, err := s.log.Last(s.t.Context())
	s.must(err)
	s.must(s.model.Wait(s.t.Context(), last))
}

// reconnected cuts the stream, lets something happen meanwhile, and waits until the same bridge is connected again.
func (s *system) reconnected(r *running, meanwhile func()) {
	s.t.Helper()
	s.cut()
	expect.Eventually(s.t, "the bridge notices", func() bool { return !r.Condition().Connected })
	meanwhile()
	s.back()
	r.connected()
	s.drained()
}

// events are those in the log that match the filter.
func (s *system) events(filter string) (all []events.Event) {
	s.t.Helper()
	_, err := s.log.Fold(s.t.Context(), filter, 0, func(e events.Event) error {
		if _, typ := e.Subject.OpenCodeType(); !typ || e.Subject.Kind != "opencode.test.marker" || filter != events.AllEvents {
			all = append(all, e)
		}
		return e.Malformed
	})
	s.must(err)
	return all
}

// facts are the bodies of a chat's events of one kind of our own.
func facts[D events.Data](s *system, chat string) (all []D) {
	s.t.Helper()
	for _, e := range s.events(events.ChatSubject(chat, (*new(D)).Kind())) {
		d, err := events.Decode(e)
		s.must(err)
		all = append(all, d.(D))
	}
	return all
}

// openCode are a chat's OpenCode events of one type.
func (s *system) openCode(chat, typ string) []events.Event {
	s.t.Helper()
	return s.events(events.ChatOpenCodeSubject(chat, typ))
}

// chatOf is the chat of a session.
func (s *system) chatOf(session string) string {
	s.t.Helper()
	row, known, err := s.model.Session(s.t.Context(), session)
	s.must(err)
	if !known {
		s.t.Fatalf("session %s is not known", session)
	}
	return row.Chat
}

// session makes a session in OpenCode that no chat asked for.
func (s *system) session(id, parent string) {
	info := fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"parentID":%q,"directory":"/workspace","title":"t"}}`, id, id, parent)
	s.happen(s.durably(id, "session.created", info)...)
}

// chat makes a chat and submits messages to it.
func (s *system) chat(messages ...string) string {
	s.t.Helper()
	chat, _, err := s.chats.Create(s.t.Context(), chat.Create{Title: "t", User: "u1"})
	s.must(err)
	s.submit(chat, messages...)
	return chat
}

func (s *system) submit(chatID string, messages ...string) {
	s.t.Helper()
	for _, text := range messages {
		_, _, err := s.chats.SubmitMessage(s.t.Context(), chat.SubmitMessage{
			Command: handlers.Command{Actor: events.UserActor("u1")}, Chat: chatID, Parts: []events.Part{{Type: "text", Text: text}},
		})
		s.must(err)
	}
}
