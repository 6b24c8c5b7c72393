package log_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
)

// appendLost appends n events of one chat, numbered from first.
func appendLost(t testing.TB, l *log.Log, chat string, first, n int) {
	t.Helper()
	is := is.New(t)
	for i := range n {
		e, err := events.New(chat, events.ActorPolicy, events.TurnLost{Session: fmt.Sprintf("ses_%d", first+i)})
		is.NoErr(err)
		_, err = l.Append(t.Context(), e)
		is.NoErr(err)
	}
}

// work runs a consumer until fn says stop, and returns the sessions it was given and what failed.
func work(t *testing.T, l *log.Log, filter string, fn func(n int, session string) (err error,
	stop bool)) (given []string, failures []error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	return workWith(ctx, stop, t, l, filter, fn)
}

// workWith is work with a context that stop ends.
func workWith(ctx context.Context, stop func(), t *testing.T, l *log.Log, filter string, fn func(n int,
	session string) (err error, stop bool)) (given []string, failures []error) {
	t.Helper()
	err := l.Consume(ctx, "gate", filter, func(_ context.Context, e events.Event) error {
		d, err := events.Decode(e)
		if err != nil {
			return err
		}
		session := d.(events.TurnLost).Session
		given = append(given, session)
		err, last := fn(len(given), session)
		if last {
			stop()
		}
		return err
	}, func(_ events.Event, err error) { failures = append(failures, err) })
	is.New(t).True(errors.Is(err, context.Canceled))
	return given, failures
}

const lostFilter = "evt.chat.*.turn.lost"

func TestWorkRunsInOrderAndContinuesAfterARestart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := expect.MemoryDir(t)
	s := eventstest.Server(t, dir)
	l := eventstest.Open(t, eventstest.Conn(t, s))
	appendLost(t, l, "chat1", 0, 5)
	// The consumer dies during the third event, which is not done before its acknowledgement.
	given, failures := work(t, l, lostFilter, func(n int, _ string) (error, bool) {
		if n == 3 {
			return errors.New("killed"), true
		}
		return nil, false
	})
	is.Equal(strings.Join(given, " "), "ses_0 ses_1 ses_2")
	is.Equal(len(failures), 0) // a consumer that is stopped has not failed

	l = restart(t, s, dir)
	appendLost(t, l, "chat2", 5, 2)
	given, _ = work(t, l, lostFilter, func(_ int, session string) (error, bool) { return nil, session == "ses_6" })
	is.Equal(strings.Join(given, " "), "ses_2 ses_3 ses_4 ses_5 ses_6")
}

func TestAConsumerWithoutProgressBeginsWhereItIsTold(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	appendLost(t, l, "chat1", 0, 5)
	asked := 0
	run := func(begin uint64, last string) (given []string) {
		t.Helper()
		ctx, stop := context.WithCancel(log.ConsumeAfter(t.Context(), func(context.Context) (uint64, error) {
			asked++
			return begin, nil
		}))
		defer stop()
		given, failures := workWith(ctx, stop, t, l, lostFilter, func(_ int, session string) (error, bool) {
			return nil, session == last
		})
		is.Equal(len(failures), 0)
		return given
	}
	is.Equal(strings.Join(run(2, "ses_3"), " "), "ses_2 ses_3")
	is.Equal(strings.Join(run(0, "ses_4"), " "), "ses_4") // it has progress now
	is.Equal(asked, 1)
	js, err := jetstream.New(nc)
	is.NoErr(err)
	is.NoErr(js.DeleteConsumer(t.Context(), log.EventsStream, "gate"))
	is.Equal(strings.Join(run(3, "ses_4"), " "), "ses_3 ses_4")
	is.NoErr(js.DeleteConsumer(t.Context(), log.EventsStream, "gate"))
	is.Equal(strings.Join(run(0, "ses_1"), " "), "ses_0 ses_1")
}

// restart stops the server, as a stop of the whole system does, and opens the log of another one on the same files.
func restart(t *testing.T, s *server.Server, dir string) *log.Log {
	t.Helper()
	s.Shutdown()
	s.WaitForShutdown()
	return eventstest.Open(t, eventstest.Conn(t, eventstest.Server(t, dir)))
}

func TestFailedWorkIsRetriedBeforeTheNext(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	appendLost(t, l, "chat1", 0, 3)
	given, failures := work(t, l, lostFilter, func(n int, session string) (error, bool) {
		if n == 2 || n == 3 {
			return fmt.Errorf("try %d", n), false
		}
		return nil, session == "ses_2"
	})
	is.Equal(strings.Join(given, " "), "ses_0 ses_1 ses_1 ses_1 ses_2")
	is.Equal(fmt.Sprint(failures), "[try 2 try 3]")
}

func TestWorkSkipsForeignMessages(t *testing.T) {
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	appendLost(t, l, "chat1", 0, 1)
	is.NoErr(nc.Publish("evt.chat.chat1.turn.lost", []byte("not an event")))
	is.NoErr(nc.Flush())
	_, err := l.Append(t.Context(), openCode(t, "chat1", "evt_1", 0, 10))
	is.NoErr(err)
	appendLost(t, l, "chat2", 1, 1)
	given, failures := work(t, l, lostFilter, func(_ int, session string) (error, bool) { return nil, session == "ses_1" })
	is.Equal(strings.Join(given, " "), "ses_0 ses_1")
	is.Equal(len(failures), 0)
}

// Two processes share the work of one name. An event that one of them works on is not delivered to the other.
func TestLongWorkIsNotHandedOutTwice(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	appendLost(t, l, "chat1", 0, 2)
	ctx, stop := context.WithCancel(t.Context())
	given, ended := make(chan string, 10), make(chan error, 2)
	for range 2 {
		go func() {
			ended <- l.Consume(ctx, "gate", lostFilter, func(_ context.Context, e events.Event) error {
				given <- string(e.Data)
				if e.Seq == 1 {
					<-time.After(5 * time.Second) // longer than the server waits for a sign of progress
				}
				return nil
			}, func(events.Event, error) {})
		}()
	}
	is.Equal(<-given, `{"session":"ses_0"}`)
	is.Equal(<-given, `{"session":"ses_1"}`)
	stop()
	for range 2 {
		is.True(errors.Is(<-ended, context.Canceled))
	}
	is.Equal(len(given), 0)
}

func TestLastAckedReturnsTheProgressOfAConsumer(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	worked := func() uint64 {
		t.Helper()
		seq, err := l.LastAcked(t.Context(), "gate")
		is.NoErr(err)
		return seq
	}
	is.Equal(worked(), uint64(0)) // there is none yet
	appendLost(t, l, "chat1", 0, 3)
	work(t, l, lostFilter, func(n int, _ string) (error, bool) {
		is.True(worked() < uint64(n)) // an event in work is not counted
		return nil, n == 3
	})
	is.True(worked() >= 2)
}

func TestWorkAllContinuesTheProgressOfOneFilter(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	appendLost(t, l, "chat1", 0, 2)
	given, _ := work(t, l, lostFilter, func(n int, _ string) (error, bool) { return nil, n == 1 })
	is.Equal(given, []string{"ses_0"})
	e, err := events.New("chat2", events.ActorPolicy, events.PermissionInterrupted{Permission: "per_1"})
	is.NoErr(err)
	_, err = l.Append(t.Context(), e)
	is.NoErr(err)
	appendLost(t, l, "chat1", 2, 1)

	ctx, stop := context.WithCancel(t.Context())
	var kinds []string
	err = l.ConsumeAll(ctx, "gate", []string{"evt.chat.*.permission.*", lostFilter},
		func(_ context.Context, e events.Event) error {
			if kinds = append(kinds, e.Subject.Kind); len(kinds) == 3 {
				stop()
			}
			return nil
		}, func(_ events.Event, err error) { t.Error(err) })
	is.True(errors.Is(err, context.Canceled))
	is.Equal(kinds, []string{"turn.lost", "permission.interrupted", "turn.lost"})
}

func TestSlowWorkOfOneChatDelaysNoOther(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	appendLost(t, l, "slow", 0, 3)
	appendLost(t, l, "quick", 3, 3)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	given, release, ended := make(chan string, 16), make(chan struct{}), make(chan error)
	go func() {
		ended <- l.ConsumeByChat(ctx, "gate", lostFilter, func(ctx context.Context, e events.Event) error {
			if e.Subject.ID == "slow" {
				<-release
			}
			d, err := events.Decode(e)
			given <- d.(events.TurnLost).Session
			return err
		}, func(_ events.Event, err error) { t.Error(err) })
	}()
	for _, want := range []string{"ses_3", "ses_4", "ses_5"} { // while the first chat is not done
		is.Equal(<-given, want)
	}
	close(release)
	for _, want := range []string{"ses_0", "ses_1", "ses_2"} {
		is.Equal(<-given, want)
	}
	expect.Eventually(t, "the server knows that all is done", func() bool {
		n, err := l.LastAcked(t.Context(), "gate")
		return err == nil && n == 6
	})
	stop()
	is.True(errors.Is(<-ended, context.Canceled))
}

func TestWorkByChatRetriesFailedEvents(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	appendLost(t, l, "chat1", 0, 2)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	given, ended := make(chan string, 16), make(chan error)
	failed := false
	go func() {
		ended <- l.ConsumeByChat(ctx, "gate", lostFilter, func(ctx context.Context, e events.Event) error {
			d, err := events.Decode(e)
			if session := d.(events.TurnLost).Session; session == "ses_0" && !failed {
				failed = true
				return errors.New("once")
			}
			given <- d.(events.TurnLost).Session
			return err
		}, func(events.Event, error) {})
	}()
	is.Equal(<-given, "ses_1")
	is.Equal(<-given, "ses_0")
	stop()
	is.True(errors.Is(<-ended, context.Canceled))
}
