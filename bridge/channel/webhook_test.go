package channel_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	bridge "pocketcoder/bridge/channel"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// tokens are the tokens of targets, by URL.
var tokens sync.Map

// target is a URL that gets events.
type target struct {
	*httptest.Server
	mu     sync.Mutex
	got    []uint64 // sequences
	last   bridge.WebhookBody
	status int
}

func newTarget(t *testing.T, status int) *target {
	one := &target{status: status}
	one.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var p bridge.WebhookBody
		token, _ := tokens.Load(one.URL)
		signature := "sha256=" + bridge.SignWebhook([]byte(fmt.Sprint(token)), r.Header.Get("X-PocketCoder-Timestamp"), body)
		if json.Unmarshal(body, &p) != nil || r.Header.Get("X-PocketCoder-Signature") != signature {
			t.Errorf("not signed: %s", body)
		}
		one.mu.Lock()
		defer one.mu.Unlock()
		one.got, one.last = append(one.got, p.Seq), p
		w.WriteHeader(one.status)
	}))
	t.Cleanup(one.Close)
	return one
}

func (o *target) seqs() []uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.got)
}

type system struct {
	t        *testing.T
	nc       *nats.Conn
	log      *log.Log
	model    *projections.Model
	channels *channel.Channels
	private  bool
	stop     func()
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newSystem(t *testing.T) *system {
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	s := &system{t: t, nc: nc, log: eventstest.Open(t, nc), private: true}
	secrets, err := secret.Open(t.Context(), nc, 1)
	check(t, err)
	s.model, err = projections.Open(t.Context(), expect.MemoryDir(t), s.log)
	check(t, err)
	t.Cleanup(func() { s.model.Close() })
	expect.Background(t, s.model.Run)
	s.channels = &channel.Channels{Log: s.log, Secrets: secrets, Records: recordtype.Open(s.log, nil)}
	s.channels.Records.Secrets = secrets
	s.start()
	return s
}

// start starts a new sender, as a restart does.
func (s *system) start() {
	sender := &bridge.WebhookSender{Channels: s.channels, Log: s.log, Model: s.model,
		Logger: slog.New(slog.DiscardHandler), RetryAfter: []time.Duration{time.Millisecond}, AllowPrivate: s.private}
	s.stop = expect.Background(s.t, sender.Run)
}

// save adds a target.
func (s *system) save(name, url, types string) {
	s.t.Helper()
	token := ""
	_, _, err := s.channels.Records.Save(s.t.Context(), record.Save{New: true,
		Command: handlers.Command{Actor: events.ActorSystem}, Collection: channel.Targets, Made: &token, Set: record.Fields(map[string]any{"name": name, "url": url, "types": types})})
	check(s.t, err)
	tokens.Store(url, token)
}

// append appends events of a chat and returns their sequences.
func (s *system) append(n int, d events.Data) (seqs []uint64) {
	s.t.Helper()
	for range n {
		e, err := events.New("c1", events.ActorSystem, d)
		check(s.t, err)
		seq, err := s.log.Append(s.t.Context(), e)
		check(s.t, err)
		seqs = append(seqs, seq)
	}
	return seqs
}

// await waits until a target has events. One comes twice if its delivery was stopped before it was recorded.
func (s *system) await(o *target, want []uint64) {
	s.t.Helper()
	expect.Eventually(s.t, fmt.Sprint("the target has ", want), func() bool {
		return slices.Equal(slices.Compact(o.seqs()), want)
	})
}

func (s *system) failed() []projections.NamedWebhookFailure {
	s.t.Helper()
	all, err := s.model.WebhookFailures(s.t.Context(), 100)
	check(s.t, err)
	return all
}

func TestATargetGetsTheEventsOfItsTypesOnceAndInOrder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, one, dead := newSystem(t), newTarget(t, 200), newTarget(t, 500)
	s.append(1, events.TurnLost{Session: "before"})
	s.save("dead", dead.URL, "turn.lost")
	s.save("one", one.URL, "turn.lost abort.requested")
	var want []uint64
	for range 5 {
		want = append(want, s.append(1, events.TurnLost{Session: "x"})...)
		want = append(want, s.append(1, events.AbortRequested{})...)
		s.append(1, events.EffectDone{Effect: "x"})
	}
	s.await(one, want)
	for range 10 { // a restart at any moment
		s.stop()
		s.start()
		want = append(want, s.append(1, events.AbortRequested{})...)
	}
	s.await(one, want)
	expect.Eventually(t, "the dead target has failed", func() bool { return len(s.failed()) == 5 })
	oldest := s.failed()[4]
	is.Equal(oldest.Event, int64(want[0]))
	is.Equal([]string{oldest.Name, oldest.Type, oldest.Reason}, []string{"dead", "turn.lost", "500 Internal Server Error"})

	dead.mu.Lock()
	dead.got, dead.status = nil, 204
	dead.mu.Unlock()
	_, err := s.channels.Replay(t.Context(), channel.Replay{Command: handlers.Command{Actor: events.ActorSystem},
		Target: "dead", From: want[4]})
	is.NoErr(err)
	s.await(dead, []uint64{want[4], want[6], want[8]})
	expect.Eventually(t, "what was delivered is no failure", func() bool { return len(s.failed()) == 2 })
	is.Equal(s.failed()[0].Event, int64(want[2]))

	all, err := s.channels.ListTargets(t.Context())
	is.NoErr(err)
	for _, one := range all {
		seq, err := s.channels.Records.Delete(t.Context(), record.Delete{Command: handlers.Command{Actor: events.ActorSystem},
			Collection: channel.Targets, Record: one.ID})
		is.NoErr(err)
		is.NoErr(s.model.Wait(t.Context(), seq))
	}
	is.Equal(len(s.failed()), 0) // those of a deleted target are not shown
}

func TestATargetGetsEventsOfRecordsAndAccounts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, one := newSystem(t), newTarget(t, 200)
	s.save("one", one.URL, "config.schedules.fired user.account.updated audit.login.failed turn.lost")
	event := func(e events.Event, err error) events.Event { is.NoErr(err); return e }
	const by = events.ActorSystem
	var want []uint64
	for _, of := range []struct {
		events.Event
		typ, chat, about string
	}{
		{event(events.NewConfig("budgets", "b1", by, events.Deleted{})), "", "", ""},
		{event(events.NewConfig("schedules", "s1", by, events.ScheduleFired{Chat: "c1"})), "config.schedules.fired", "", "s1"},
		{event(events.NewUser("u1", by, events.AccountUpdated{})), "user.account.updated", "", "u1"},
		{event(events.NewAudit(by, events.LoginFailed{})), "audit.login.failed", "", ""},
		{event(events.New("c1", by, events.TurnLost{})), "turn.lost", "c1", ""},
	} {
		seq, err := s.log.Append(t.Context(), of.Event)
		is.NoErr(err)
		if of.typ == "" {
			continue // the target gets the events of its types only
		}
		want = append(want, seq)
		s.await(one, want)
		one.mu.Lock()
		is.Equal([]string{one.last.Type, one.last.Chat, one.last.ID}, []string{of.typ, of.chat, of.about})
		one.mu.Unlock()
	}
	for _, types := range []string{"config.webhook_targets.webhook.delivered", "config.devices.saved", "config.schedules",
		"user", "audit.*"} {
		_, _, err := s.channels.Records.Save(t.Context(), record.Save{New: true,
			Command: handlers.Command{Actor: events.ActorSystem}, Collection: channel.Targets, Set: record.Fields(map[string]any{"name": types, "url": one.URL, "types": types})})
		is.Equal(handlers.CodeOf(err), handlers.Invalid) // types
	}
}

// The request of the settings before has a moment to end.
func TestAChangedTargetGetsOneEventAtATime(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, other := newSystem(t), newTarget(t, 200)
	var running, most atomic.Int64
	arrived, release := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		defer running.Add(-1)
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		if most.Load() == 1 {
			arrived <- struct{}{}
			<-release
		}
	}))
	t.Cleanup(slow.Close)
	s.save("slow", slow.URL, "turn.lost")
	s.append(1, events.TurnLost{Session: "x"})
	<-arrived
	all, err := s.channels.ListTargets(t.Context())
	is.NoErr(err)
	_, _, err = s.channels.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem},
		Collection: channel.Targets, Record: all[0].ID, Set: record.Fields(map[string]any{"types": "turn.lost abort.requested"})})
	is.NoErr(err)
	s.save("other", other.URL, "turn.lost") // begins not before the changed one
	s.await(other, s.append(1, events.TurnLost{Session: "y"}))
	go func() {
		for range arrived { // later requests
		}
	}()
	close(release)
	expect.Eventually(t, "it has the others", func() bool {
		position, err := s.channels.Position(t.Context(), all[0].ID)
		last, _ := s.log.Newest(t.Context(), events.ChatSubject("c1", "turn.lost"))
		return err == nil && position.Event == last
	})
	is.Equal(most.Load(), int64(1))
	s.stop() // the last request has ended
	slow.Close()
	close(arrived)
}

func TestATargetAtAPrivateAddressIsNotReached(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, one := newSystem(t), newTarget(t, 200)
	s.stop()
	s.private = false
	s.start()
	s.save("plain", one.URL, "turn.lost")
	s.save("private", strings.Replace(one.URL, "http:", "https:", 1), "turn.lost")
	s.append(1, events.TurnLost{Session: "x"})
	expect.Eventually(t, "both failed", func() bool { return len(s.failed()) == 2 })
	is.Equal(len(one.seqs()), 0)
	reasons := s.failed()[0].Reason + s.failed()[1].Reason
	expect.Contains(t, reasons, "must be https")
	expect.Contains(t, reasons, "not a public address")
}

func TestAReplayIsNotLostToADeliveryThatEndsAfterIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, one := newSystem(t), newTarget(t, 200)
	s.save("one", one.URL, "turn.lost")
	want := s.append(3, events.TurnLost{Session: "x"})
	s.await(one, want)
	s.stop()
	all, err := s.channels.ListTargets(t.Context())
	is.NoErr(err)
	before, err := s.channels.Position(t.Context(), all[0].ID)
	is.NoErr(err)
	_, err = s.channels.Replay(t.Context(), channel.Replay{Command: handlers.Command{Actor: events.ActorSystem},
		Target: "one", From: want[1]})
	is.NoErr(err)
	err = s.channels.RecordDelivery(t.Context(), all[0].ID, before, events.WebhookDelivered{Event: want[2], Attempts: 1})
	is.True(errors.Is(err, log.ErrConflict))
	s.start()
	s.await(one, append(want, want[1], want[2]))
}
