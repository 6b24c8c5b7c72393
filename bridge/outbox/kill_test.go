package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	bridge "pocketcoder/bridge/channel"
	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/outbox"
	"pocketcoder/bridge/push"
	"pocketcoder/events"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
)

// outside is the system to which effects go: a push service, a messenger, a target of webhooks, or OpenCode.
type outside struct {
	*httptest.Server
	mu      sync.Mutex
	got     []string      // ids of the effects that have arrived, in order
	arrived chan struct{} // set to hold the next one: it is closed when the effect has arrived,
	release chan struct{} // and the answer comes when this is closed
}

func newOutside(t *testing.T) *outside {
	o := &outside{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		o.receive(r.Header.Get("X-Sequence-ID") + r.Header.Get("Idempotency-Key"))
	}))
	t.Cleanup(o.Close)
	return o
}

// receive reports whether the effect was held.
func (o *outside) receive(id string) (held bool) {
	o.mu.Lock()
	o.got = append(o.got, id)
	arrived, release := o.arrived, o.release
	o.arrived, o.release = nil, nil
	o.mu.Unlock()
	if arrived != nil {
		close(arrived)
		<-release
	}
	return arrived != nil
}

// hold lets the next effect arrive without an answer until release is closed.
func (o *outside) hold() (arrived, release chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.arrived, o.release = make(chan struct{}), make(chan struct{})
	return o.arrived, o.release
}

func (o *outside) ids() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.got)
}

// messenger is a platform of channels.
type messenger struct{ *outside }

func (m messenger) Run(ctx context.Context, _ bridge.Receiver) error { <-ctx.Done(); return ctx.Err() }
func (m messenger) Typing(context.Context, string) error             { return nil }
func (m messenger) Split(text string) []string                       { return []string{text} }
func (m messenger) Send(_ context.Context, _ string, message bridge.Message) (string, error) {
	m.receive(message.ID)
	return "1", nil
}

// kind is a kind of effects.
type kind struct {
	repeats  bool // an effect without a recorded outcome is sent again, because outside it has no further consequence
	outcomes func(s *bridgetest.System) int
	prepare  func(t *testing.T, s *bridgetest.System, o *outside) // once
	open     func(t *testing.T, s *bridgetest.System)             // appends an event that opens an effect
	start    func(t *testing.T, s *bridgetest.System, o *outside) (stop func())
}

func appendEvent(t *testing.T, s *bridgetest.System, e events.Event, err error) {
	t.Helper()
	s.Must(err)
	_, err = s.Log.Append(t.Context(), e)
	s.Must(err)
}

// save stores a configuration record.
func save(t *testing.T, s *bridgetest.System, c record.Save) {
	t.Helper()
	secrets, err := secret.Open(t.Context(), s.NC, 1)
	s.Must(err)
	s.Records.Secrets = secrets
	c.Command, c.New = handlers.Command{Actor: events.ActorSystem}, true
	_, seq, err := s.Records.Save(t.Context(), c)
	s.Must(err)
	s.Must(s.Model.Wait(t.Context(), seq))
}

// channelsOf returns the channels of a process.
func channelsOf(t *testing.T, s *bridgetest.System) *channel.Channels {
	secrets, err := secret.Open(t.Context(), s.NC, 1)
	s.Must(err)
	s.Records.Secrets = secrets
	return &channel.Channels{Log: s.Log, Secrets: secrets, Records: s.Records, Chats: s.Chats,
		AwaitReadModels: s.Model.Wait}
}

// count returns a function that counts the events that match one of the filters.
func count(filters ...string) func(s *bridgetest.System) int {
	return func(s *bridgetest.System) (n int) {
		for _, filter := range filters {
			n += len(s.Events(filter))
		}
		return n
	}
}

var quiet = slog.New(slog.DiscardHandler)

var kinds = map[string]kind{
	"OpenCode": {
		repeats: true,
		outcomes: func(s *bridgetest.System) int { // delivered, or reported by OpenCode
			s.Must(s.Model.CatchUp(s.T.Context()))
			open, err := s.Model.PendingMessages(s.T.Context())
			s.Must(err)
			return len(s.Events(events.ChatSubject("*", "message.submitted"))) - len(open)
		},
		prepare: func(_ *testing.T, s *bridgetest.System, o *outside) {
			s.RefuseWith(func(r bridgetest.Request) int {
				var prompt struct{ MessageID string }
				if strings.HasSuffix(r.Path, "/prompt_async") && json.Unmarshal([]byte(r.Body), &prompt) == nil &&
					o.receive(prompt.MessageID) {
					return http.StatusServiceUnavailable // OpenCode does not have it
				}
				return 0
			})
		},
		open:  func(_ *testing.T, s *bridgetest.System) { s.Chat("hello") },
		start: func(_ *testing.T, s *bridgetest.System, _ *outside) func() { return s.Start().Stop },
	},
	"push": {
		repeats: true, outcomes: count(events.UserSubject("*", "notification.sent")),
		prepare: func(t *testing.T, s *bridgetest.System, o *outside) {
			save(t, s, record.Save{Collection: "devices", Record: "d1", Set: record.Fields(map[string]any{"user": "u1",
				"name": "phone", "push_service": push.UnifiedPush, "push_token": o.URL + "/topic", "is_active": true})})
		},
		open: func(t *testing.T, s *bridgetest.System) {
			e, err := events.NewUser("u1", events.ActorSystem, events.NotificationQueued{Notification: events.NewID(),
				Device: "d1", User: "u1", Notice: events.Notice{Type: "news", Message: "hello"}})
			appendEvent(t, s, e, err)
		},
		start: func(t *testing.T, s *bridgetest.System, _ *outside) func() {
			secrets, err := secret.Open(t.Context(), s.NC, 1)
			s.Must(err)
			return expect.Background(t, (&push.Push{Log: s.Log, Secrets: secrets, Model: s.Model, Records: s.Records,
				Logger: quiet, Sender: push.Sender{AllowPrivate: true}, Present: func(_, _ string) bool { return false },
				RetryAfter: outbox.RetryAfter, AwayAfter: push.DefaultAwayAfter}).Run)
		},
	},
	"channel": {
		outcomes: count(events.ChatSubject("*", "channel.sent"), events.ChatSubject("*", "channel.failed")),
		prepare: func(t *testing.T, s *bridgetest.System, _ *outside) {
			save(t, s, record.Save{Collection: channel.Collection, Record: "bot", Set: record.Fields(map[string]any{
				"name": "bot", "kind": channel.Telegram, "token": "1:abcdefghijklmnopq", "enabled": true})})
		},
		open: func(t *testing.T, s *bridgetest.System) {
			e, err := events.New("c1", events.ActorSystem, events.ChannelQueued{Message: events.NewID(), Channel: "bot",
				Place: "7", Type: events.OutgoingNotice, Text: "hello"})
			appendEvent(t, s, e, err)
		},
		start: func(t *testing.T, s *bridgetest.System, o *outside) func() {
			return expect.Background(t, (&bridge.Hub{Channels: channelsOf(t, s), Model: s.Model, Logger: quiet,
				RetryAfter: outbox.RetryAfter, Connect: func(channel.Channel, string, *slog.Logger) (bridge.Platform, error) {
					return messenger{o}, nil
				}}).Run)
		},
	},
	"webhook": {
		repeats: true, outcomes: count(events.ConfigSubject(channel.Targets, "*", "webhook.delivered")),
		prepare: func(t *testing.T, s *bridgetest.System, o *outside) {
			save(t, s, record.Save{Collection: channel.Targets, Made: new(string), Set: record.Fields(map[string]any{
				"name": "target", "url": o.URL, "types": "turn.lost"})})
		},
		open: func(t *testing.T, s *bridgetest.System) {
			e, err := events.New("c1", events.ActorSystem, events.TurnLost{Session: "x"})
			appendEvent(t, s, e, err)
		},
		start: func(t *testing.T, s *bridgetest.System, _ *outside) func() {
			return expect.Background(t, (&bridge.WebhookSender{Channels: channelsOf(t, s), Log: s.Log, Model: s.Model,
				Logger: quiet, RetryAfter: outbox.RetryAfter, AllowPrivate: true}).Run)
		},
	},
}

// subject is a kind of effects in a system whose processes are killed.
type subject struct {
	kind
	t *testing.T
	*bridgetest.System
	out *outside
}

// kill kills the process. answered is closed when its connection to the log is gone; nil for none.
func (s *subject) kill(stop func(), answered chan struct{}) {
	s.System = s.Killed(func() {
		if answered != nil {
			close(answered)
		}
		stop()
	})
}

func (s *subject) start() (stop func()) { return s.kind.start(s.t, s.System, s.out) }

func (s *subject) awaitOutcomes(n int) {
	s.t.Helper()
	expect.Eventually(s.t, fmt.Sprint(n, " outcomes"), func() bool { return s.outcomes(s.System) == n })
}

// A process is killed at three moments, and another one goes on with the same log.
func TestAKilledProcessRepeatsAndForgetsNoEffect(t *testing.T) {
	t.Parallel()
	for moment, test := range map[string]func(is *is.I, s *subject){
		"before the try": func(is *is.I, s *subject) {
			s.open(s.t, s.System)
			s.kill(func() {}, nil)
			s.start()
			s.awaitOutcomes(1)
			is.Equal(len(s.out.ids()), 1)
		},
		"between the try and its outcome": func(is *is.I, s *subject) {
			stop := s.start()
			arrived, release := s.out.hold()
			s.open(s.t, s.System)
			<-arrived
			s.kill(stop, release)
			s.awaitOutcomes(0)
			s.start()
			s.awaitOutcomes(1)
			ids := s.out.ids()
			is.Equal(len(slices.Compact(slices.Clone(ids))), 1) // it can be recognized
			is.Equal(len(ids) == 2, s.repeats)
		},
		"after the outcome": func(is *is.I, s *subject) {
			stop := s.start()
			s.open(s.t, s.System)
			s.awaitOutcomes(1)
			s.kill(stop, nil)
			s.start()
			s.open(s.t, s.System)
			s.awaitOutcomes(2)
			ids := s.out.ids()
			is.Equal(len(ids), 2)
			is.True(ids[0] != ids[1])
		},
	} {
		for name, k := range kinds {
			t.Run(name+" "+moment, func(t *testing.T) {
				t.Parallel()
				s := &subject{k, t, bridgetest.NewSystem(t), newOutside(t)}
				k.prepare(t, s.System, s.out)
				test(is.New(t), s)
			})
		}
	}
}
