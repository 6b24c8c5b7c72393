package channel_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	bridge "pocketcoder/bridge/channel"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
)

func TestAnUpdateThatFailsEachTimeIsSkipped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		var lines expect.Buffer
		logger := slog.New(slog.NewTextHandler(&lines, nil)).With("update", 7)
		calls, began := 0, time.Now()
		is.True(bridge.DefaultTries.HandOver(t.Context(), logger, func(context.Context) error {
			calls++
			return errors.New("the update is too long")
		}))
		is.Equal(calls, 5)
		is.Equal(time.Since(began), (5+15+45+135)*time.Second)
		expect.Contains(t, lines.String(),
			`msg="skipped an update of a channel" update=7 tries=5 err="the update is too long"`)

		calls, began = 0, time.Now()
		is.True(bridge.DefaultTries.HandOver(t.Context(), logger, func(ctx context.Context) error {
			calls++
			<-ctx.Done() // a try that takes too long ends, and counts
			return ctx.Err()
		}))
		is.Equal(calls, 5)
		is.Equal(time.Since(began), (5+15+45+135)*time.Second+5*time.Minute)
	})
}

func TestNoUpdateIsSkippedWhileTheLogDoesNotStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		calls := 0
		is.True(!bridge.DefaultTries.HandOver(t.Context(), slog.New(slog.DiscardHandler), func(context.Context) error {
			switch calls++; {
			case calls > 100:
				return nil
			case calls%2 == 0:
				return nats.ErrNoResponders
			}
			return log.Unavailable("The disk is full.")
		}))
		is.Equal(calls, 101)
	})
}

func TestATryEndsWithTheChannel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		is.True(!bridge.DefaultTries.HandOver(ctx, slog.New(slog.DiscardHandler), func(ctx context.Context) error {
			calls++
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}))
		is.Equal(calls, 1)
	})
}
