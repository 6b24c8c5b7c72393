package log_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
)

// appendManyLost appends n events of one chat at once, numbered from first.
func appendManyLost(t *testing.T, l *log.Log, chat string, first, n int) {
	t.Helper()
	is := is.New(t)
	all := make([]events.Event, n)
	for i := range all {
		e, err := events.New(chat, events.ActorPolicy, events.TurnLost{Session: fmt.Sprintf("ses_%d", first+i)})
		is.NoErr(err)
		all[i] = e
	}
	_, err := l.AppendAll(t.Context(), all)
	is.NoErr(err)
}

func TestManyWaitingEventsOfOneChatDelayNoOther(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	const many = 1000
	appendManyLost(t, l, "slow", 0, many)
	appendManyLost(t, l, "quick", many, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	slow, quick := make(chan string, 2*many), make(chan string, 2)
	release, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- l.ConsumeByChat(ctx, "gate", lostFilter, func(ctx context.Context, e events.Event) error {
			d, err := events.Decode(e)
			if err != nil {
				return err
			}
			given := slow
			if e.Subject.ID == "quick" {
				given = quick
			}
			given <- d.(events.TurnLost).Session
			if given == slow {
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
			return ctx.Err()
		}, func(_ events.Event, err error) { t.Error(err) })
	}()
	is.Equal(<-slow, "ses_0")
	expect.Eventually(t, "the other chat's event is handled", func() bool { return len(quick) == 1 })
	is.Equal(len(slow), 0) // the first one is still in work

	close(release)
	for i := 1; i < many; i++ {
		is.Equal(<-slow, fmt.Sprintf("ses_%d", i))
	}
	expect.Eventually(t, "the server knows that all is done", func() bool {
		n, err := l.LastAcked(t.Context(), "gate")
		return err == nil && n == many+1
	})
	is.Equal(len(slow), 0) // none is handled twice
	stop()
	is.True(errors.Is(<-ended, context.Canceled))
}
