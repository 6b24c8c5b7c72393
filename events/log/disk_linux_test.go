package log_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
)

const smallDiskSize = 120 << 20 // bytes

// smallLog is a log on a small disk, with a reader and a consumer.
type smallLog struct {
	*log.Log
	server *natsconf.Server
	dir    string
	stderr lines // of the server

	t            *testing.T
	n            int
	acknowledged []string // ids, in order
	read, worked lines
}

// lines collects what several goroutines write.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

func (l *lines) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

func (l *lines) Write(p []byte) (int, error) {
	l.add(string(bytes.TrimSpace(p)))
	return len(p), nil
}

func openSmallLog(t *testing.T) *smallLog {
	t.Helper()
	is := is.New(t)
	s := &smallLog{t: t, dir: t.TempDir()}
	eventstest.SmallDisk(t, s.dir, smallDiskSize>>20)
	keys, err := natsconf.LoadKeys(t.TempDir())
	is.NoErr(err)
	s.server, err = natsconf.Start(t.Context(), natsconf.Config{
		Name: "test", StoreDir: s.dir + "/nats", Keys: keys.Public, Pools: []string{"local"},
		Log: slog.New(slog.NewTextHandler(&s.stderr, nil)),
	})
	is.NoErr(err)
	t.Cleanup(s.server.Close)
	opts, err := keys.Options(natsconf.Core, "test")
	is.NoErr(err)
	nc, err := nats.Connect("", append(opts, nats.InProcessServer(s.server.Server))...)
	is.NoErr(err)
	t.Cleanup(nc.Close)
	options := log.DefaultOptions
	options.DeltaMaxBytes = 8 << 20
	s.Log, err = log.Open(t.Context(), nc, options, secret.NewRedactor())
	is.NoErr(err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		err := s.Read(ctx, 0, nil, func(b log.Batch) error {
			for _, e := range b.Events {
				s.read.add(e.ID)
			}
			return nil
		})
		if ctx.Err() == nil {
			t.Error("the reader ended:", err)
		}
	})
	running.Go(func() {
		err := s.Consume(ctx, "gate", events.AllEvents, func(_ context.Context, e events.Event) error {
			s.worked.add(e.ID)
			return nil
		}, func(e events.Event, err error) { t.Error(e.ID, err) })
		if ctx.Err() == nil {
			t.Error("the consumer ended:", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

// append appends an event of some 2 KB.
func (s *smallLog) append() error { return s.appendWithin(time.Minute) }

// tryAppend is append to a server that may not answer.
func (s *smallLog) tryAppend() error { return s.appendWithin(500 * time.Millisecond) }

func (s *smallLog) appendWithin(limit time.Duration) error {
	s.n++
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	e := eventOfSize(s.t, fmt.Sprint("evt_", s.n), 2000)
	_, err := s.Append(ctx, e)
	if err == nil {
		s.acknowledged = append(s.acknowledged, e.ID)
	}
	return err
}

// follow waits until the reader and the consumer have received every acknowledged event.
func (s *smallLog) follow() {
	s.t.Helper()
	for began := time.Now(); !containsAll(s.read.list(), s.acknowledged) ||
		!containsAll(s.worked.list(), s.acknowledged); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			s.t.Fatalf("acknowledged %d, read %d, worked %d", len(s.acknowledged), len(s.read.list()), len(s.worked.list()))
		}
	}
}

func containsAll(have, want []string) bool {
	in := map[string]bool{}
	for _, id := range have {
		in[id] = true
	}
	return !slices.ContainsFunc(want, func(id string) bool { return !in[id] })
}

// check compares the stored events with the acknowledged ones, and returns how many of these are stored once.
func (s *smallLog) check() (once int) {
	s.t.Helper()
	is := is.New(s.t)
	times := map[string]int{}
	_, err := s.Fold(s.t.Context(), events.AllEvents, 0, func(e events.Event) error {
		is.NoErr(e.Malformed)
		times[e.ID]++
		is.Equal(times[e.ID], 1)
		return nil
	})
	is.NoErr(err)
	for _, id := range s.acknowledged {
		once += times[id]
	}
	is.Equal(once, len(s.acknowledged))
	return once
}

func TestLogReopensAfterAFullDisk(t *testing.T) {
	expect.Long(t, "fills a disk")
	t.Parallel()
	is := is.New(t)
	fault := expect.CountFault(t, "events acknowledged", "of them found once")
	s := openSmallLog(t)
	for range 2 {
		for range 10 {
			is.NoErr(s.append())
		}
		is.NoErr(s.server.WriteError())
		remove := eventstest.FillDisk(t, s.dir, 0)
		var err error
		for range 100 {
			if err = s.tryAppend(); err != nil && s.server.WriteError() != nil {
				break
			}
		}
		is.True(errors.Is(err, context.DeadlineExceeded))   // the server does not answer
		is.True(s.server.JetStreamEnabled())                // its answer has no reason
		is.True(natsconf.IsDiskFull(s.server.WriteError())) // the reason is in its log
		expect.Contains(t, strings.Join(s.stderr.list(), "\n"), "no space left on device")
		_, err = s.Failing()
		is.True(errors.Is(err, context.DeadlineExceeded))
		is.True(s.server.Reopen(t.Context()) != nil) // there is still no space

		remove()
		is.True(s.tryAppend() != nil) // free space alone is not enough
		is.NoErr(s.server.Reopen(t.Context()))
		is.NoErr(s.server.WriteError())
		s.Reopened()
		is.NoErr(s.append())
		_, err = s.Failing()
		is.NoErr(err)
		s.follow()
		fault.Tried()
	}
	fault.Saw(len(s.acknowledged), s.check())
}

// received returns how many messages the server has received.
func received(t *testing.T, s *natsconf.Server) int64 {
	v, err := s.Varz(nil)
	is.New(t).NoErr(err)
	return v.InMsgs
}

func TestRequestsDuringAReopenAreAnsweredLater(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := openSmallLog(t)
	is.NoErr(s.append())
	s.follow()
	is.NoErr(s.server.ShutdownJetStream())
	before := received(t, s.server)
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 14*time.Second)
		defer cancel()
		_, err := s.Last(ctx)
		ended <- err
	}()
	expect.Eventually(t, "the server has the request", func() bool { return received(t, s.server) > before })
	is.NoErr(s.server.Reopen(t.Context()))
	s.Reopened()
	is.NoErr(<-ended)
}

// Readers and appends continue if the log is reopened while it is used.
func TestReopeningLosesNoEvent(t *testing.T) {
	expect.Long(t, "opens the log some hundred times")
	t.Parallel()
	is := is.New(t)
	s := openSmallLog(t)
	is.NoErr(s.append())
	s.follow()
	var reopening sync.WaitGroup
	done := make(chan struct{})
	reopening.Go(func() {
		defer close(done)
		for i := range 20 {
			if err := s.server.Reopen(t.Context()); err != nil {
				t.Error(err)
			}
			if i%2 == 0 { // else the client library notices by itself
				s.Reopened()
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	for open := true; open; {
		s.tryAppend() // may fail
		select {
		case <-done:
			open = false
		default:
		}
	}
	reopening.Wait()
	is.NoErr(s.append())
	is.True(len(s.acknowledged) > 20)
	s.follow()
	s.check()
}

// The server would otherwise store three quarters of what was free when it started, or was opened again.
func TestTheDiskIsTheOnlyStorageLimit(t *testing.T) {
	expect.Long(t, "fills a disk")
	t.Parallel()
	for name, prepare := range map[string]func(*natsconf.Server, context.Context) error{
		"after a start":            func(*natsconf.Server, context.Context) error { return nil },
		"after it is opened again": (*natsconf.Server).Reopen,
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := openSmallLog(t)
			is.NoErr(s.append())
			s.follow() // the reader and the consumer are there
			is.NoErr(prepare(s.server, t.Context()))
			s.Reopened()
			const size = 250_000
			var all []events.Event
			for i := range smallDiskSize / size { // the store compresses them
				all = append(all, eventOfSize(t, fmt.Sprint("evt_large_", i), size))
			}
			_, err := s.AppendAll(t.Context(), all)
			is.NoErr(err)
		})
	}
}
