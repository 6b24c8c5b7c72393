package log_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
)

// benchEvents makes n events of one chat with bodies of 500 bytes.
func benchEvents(b *testing.B, round, n int) []events.Event {
	b.Helper()
	body, _ := json.Marshal(strings.Repeat("x", 498))
	all := make([]events.Event, 0, n)
	for i := range n {
		e, err := events.NewOpenCode("chat1", "local", fmt.Sprintf("evt_%d_%d", round, i), -1,
			events.OpenCode{Type: "session.updated", Properties: body})
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func perSecond(b *testing.B, n int) {
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// One event at a time, each synced to disk.
func BenchmarkAppend(b *testing.B) {
	l := eventstest.Log(b)
	for i := 0; b.Loop(); i++ {
		if _, err := l.Append(b.Context(), benchEvents(b, i, 1)[0]); err != nil {
			b.Fatal(err)
		}
	}
	perSecond(b, 1)
}

// A burst of 5,000 events in atomic batches.
func BenchmarkAppendAll(b *testing.B) {
	l := eventstest.Log(b)
	const burst = 5000
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		all := benchEvents(b, i, burst)
		b.StartTimer()
		if _, err := l.AppendAll(b.Context(), all); err != nil {
			b.Fatal(err)
		}
	}
	perSecond(b, burst)
}

// The whole log of 20,000 events.
func BenchmarkRead(b *testing.B) {
	l := eventstest.Log(b)
	const stored = 20_000
	if _, err := l.AppendAll(b.Context(), benchEvents(b, 0, stored)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if n := len(read(b, l, 0)); n != stored {
			b.Fatal(n)
		}
	}
	perSecond(b, stored)
}

// Time from the call of Append until a reader has the event.
func BenchmarkAppendVisible(b *testing.B) {
	l := eventstest.Log(b)
	ctx, cancel := context.WithCancel(b.Context())
	caughtUp, seen, done := make(chan bool), make(chan string, 1), make(chan error, 1)
	go func() {
		done <- l.Read(ctx, 0, nil, func(batch log.Batch) error {
			if len(batch.Events) == 0 {
				close(caughtUp)
			}
			for _, e := range batch.Events {
				seen <- e.ID
			}
			return nil
		})
	}()
	<-caughtUp
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		e := benchEvents(b, i, 1)[0]
		began := time.Now()
		if _, err := l.Append(b.Context(), e); err != nil {
			b.Fatal(err)
		}
		if id := <-seen; id != e.ID {
			b.Fatal(id)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(took[len(took)*p/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
	}
	cancel()
	<-done
}

// One event at a time, with the largest number of known secrets and with none.
func BenchmarkAppendKnowing(b *testing.B) {
	for _, n := range []int{0, secret.System.Budget()} {
		b.Run(fmt.Sprint(n, " secrets"), func(b *testing.B) {
			l := eventstest.Log(b)
			all := make([]string, n)
			for i := range all {
				all[i] = fmt.Sprintf("sk-proj-%d-0123456789abcdef", i)
			}
			l.Conceal(secret.System, "all", all...)
			for i := 0; b.Loop(); i++ {
				if _, err := l.Append(b.Context(), benchEvents(b, i, 1)[0]); err != nil {
					b.Fatal(err)
				}
			}
			perSecond(b, 1)
		})
	}
}
