package outbox_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/outbox"
	"pocketcoder/ops/expect"
)

func TestMain(m *testing.M) { expect.Run(m) }

func TestNoEffectWaitsAfterAReconnectionThatReadyAwaited(t *testing.T) {
	t.Parallel()
	s := bridgetest.NewSystem(t)
	reset, tried, calls := make(chan struct{}), make(chan struct{}, 2), 0
	loop := outbox.Loop[int]{Name: "effects", Log: s.Log, Model: s.Model, Logger: quiet,
		Pauses: []time.Duration{time.Hour}, Plan: outbox.InOrder[int],
		Open: func(context.Context) ([]outbox.Effect[int], time.Duration, error) {
			return []outbox.Effect[int]{{Key: "a", Target: "a"}}, time.Hour, nil
		},
		Try: func(context.Context, outbox.Effect[int]) error {
			tried <- struct{}{}
			return errors.New("not connected")
		},
		Ready: func(context.Context) (<-chan struct{}, error) {
			if calls++; calls == 1 {
				return reset, nil
			} else if calls == 2 {
				close(reset)
			}
			return nil, nil
		}}
	expect.Background(t, loop.Run)
	<-tried
	<-tried
}

// As after a restart: nothing has woken the model yet.
func TestAnEventEndsTheWaitOfAnEffectThatIsDeferred(t *testing.T) {
	t.Parallel()
	s := bridgetest.NewSystem(t)
	s.Chat("before")
	s = s.Killed(func() {})
	tried := make(chan struct{}, 2)
	loop := outbox.Loop[int]{Name: "effects", Log: s.Log, Model: s.Model, Logger: quiet, Plan: outbox.InOrder[int],
		Open: func(context.Context) ([]outbox.Effect[int], time.Duration, error) {
			return []outbox.Effect[int]{{Key: "a", Target: "a"}}, time.Hour, nil
		},
		Try: func(context.Context, outbox.Effect[int]) error {
			tried <- struct{}{}
			return outbox.Again{After: time.Hour, OrWoken: true}
		}}
	expect.Background(t, loop.Run)
	<-tried
	s.Chat("after")
	<-tried
}

// One target cannot record what is dropped.
func TestAFailedDropStopsNoOtherTarget(t *testing.T) {
	t.Parallel()
	s := bridgetest.NewSystem(t)
	var open []outbox.Effect[int]
	for _, key := range []string{"a1", "a2", "a3", "a4", "b1", "b2", "b3"} {
		open = append(open, outbox.Effect[int]{Key: key, Target: key[:1]})
	}
	tried, dropped := make(chan string, len(open)), make(chan string, 9*len(open))
	loop := outbox.Loop[int]{Name: "effects", Log: s.Log, Model: s.Model, Logger: quiet, Most: 2,
		Plan: outbox.InOrder[int],
		Open: func(context.Context) ([]outbox.Effect[int], time.Duration, error) {
			return slices.Clone(open), time.Hour, nil
		},
		Try: func(_ context.Context, e outbox.Effect[int]) error {
			tried <- e.Key
			return outbox.Again{After: time.Hour}
		},
		Drop: func(_ context.Context, e outbox.Effect[int]) error {
			if e.Target == "a" {
				return errors.New("not recorded")
			}
			dropped <- e.Key
			return nil
		}}
	expect.Background(t, loop.Run)
	got := []string{<-tried, <-tried}
	slices.Sort(got)
	is.New(t).Equal(append(got, <-dropped), []string{"a1", "b1", "b2"})
}

func TestDropsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	s := bridgetest.NewSystem(t)
	var dropping sync.WaitGroup
	dropping.Add(2)
	dropped := make(chan string, 2)
	loop := outbox.Loop[int]{Name: "effects", Log: s.Log, Model: s.Model, Logger: quiet, Most: 1,
		Plan: func([]outbox.Effect[int], []outbox.Effect[int], time.Time) []outbox.Effect[int] { return nil },
		Open: func(context.Context) ([]outbox.Effect[int], time.Duration, error) {
			return []outbox.Effect[int]{{Key: "a1", Target: "a"}, {Key: "a2", Target: "a"}, {Key: "b1", Target: "b"},
				{Key: "b2", Target: "b"}}, time.Hour, nil
		},
		Drop: func(_ context.Context, e outbox.Effect[int]) error {
			dropping.Done()
			dropping.Wait()
			dropped <- e.Key
			return nil
		}}
	expect.Background(t, loop.Run)
	got := []string{<-dropped, <-dropped}
	slices.Sort(got)
	is.New(t).Equal(got, []string{"a2", "b2"})
}
