package projections_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// recordings lists the names of all recordings.
func recordings(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal("no recordings", err)
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".jsonl"))
	}
	return names
}

// longLog is read models over a log of real OpenCode events: all recordings, over and over with ids of their own.
func longLog(b *testing.B) (*log.Log, *projections.Model) {
	b.Helper()
	is := is.New(b)
	log := eventstest.Log(b)
	var oc []events.Event
	for _, name := range recordings(b) {
		oc = append(oc, recording(b, name)...)
	}
	created := own(b, user, events.ChatCreated{Title: "Chat", User: "ann", Engine: engine})
	last, err := log.AppendAll(b.Context(), append([]events.Event{created}, copies(b, oc, 40)...))
	is.NoErr(err)
	return log, waited(b, running(b, b.TempDir(), log), last)
}

// benchChats is how many chats the log of BenchmarkRebuild has. Each holds all recordings: about a million events
// together.
const benchChats = 1000

// manyChats is a log in which as many chats go on at the same time: one event of each after the other.
func manyChats(b *testing.B) *log.Log {
	b.Helper()
	is := is.New(b)
	l, all := eventstest.Log(b), []events.Event{own(b, user, events.ChatCreated{Title: "Chat", User: "ann",
		Engine: engine})}
	for _, name := range recordings(b) {
		all = append(all, recording(b, name)...)
	}
	for _, e := range all {
		var batch []events.Event
		for i, c := range copies(b, []events.Event{e}, benchChats) {
			subject := strings.Replace(c.RawSubject, chatID, fmt.Sprint("chat", i), 1)
			parsed, err := events.ParseSubject(subject)
			is.NoErr(err)
			c.RawSubject, c.Subject = subject, parsed
			batch = append(batch, c)
		}
		_, err := l.AppendAll(b.Context(), batch)
		is.NoErr(err)
	}
	return l
}

// BenchmarkRebuild replays a log; the metric is that of applying it, without comparing and exchanging the files. The
// worker computes the first file in the same way.
func BenchmarkRebuild(b *testing.B) {
	is := is.New(b)
	l := manyChats(b)
	last, err := l.Last(b.Context())
	is.NoErr(err)
	m := waited(b, running(b, b.TempDir(), l), last)
	expect.Eventually(b, "the first load is over", m.CaughtUp) // a rebuild during it is refused
	var n uint64
	var took time.Duration
	for b.Loop() {
		r, err := m.Rebuild(b.Context(), func(done, total uint64) {})
		is.NoErr(err)
		is.Equal(r.Before, r.After)
		n, took = n+r.Events, took+r.Duration
	}
	b.ReportMetric(float64(n)/took.Seconds(), "events/s")
}

// BenchmarkApply takes one event at a time from its acknowledged append to where queries show it.
func BenchmarkApply(b *testing.B) {
	is := is.New(b)
	log := eventstest.Log(b)
	m := running(b, b.TempDir(), log)
	all := copies(b, conversation(b, "9i-perm-task")[1:], 1+b.N/50)
	created := own(b, user, events.ChatCreated{Title: "Chat", User: "ann", Engine: engine})
	_, err := log.Append(b.Context(), created)
	is.NoErr(err)
	var waits []time.Duration
	for _, e := range all[:min(b.N, len(all))] {
		seq, err := log.Append(b.Context(), e)
		is.NoErr(err)
		appended := time.Now()
		is.NoErr(m.Wait(b.Context(), seq))
		waits = append(waits, time.Since(appended))
	}
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkWorkLists asks for everything that is left to do, in a long log where little is.
func BenchmarkWorkLists(b *testing.B) {
	_, m := longLog(b)
	ctx := b.Context()
	for name, ask := range map[string]func() error{
		"Messages":           func() error { _, err := m.PendingMessages(ctx); return err },
		"Requests":           func() error { _, err := m.PendingRequests(ctx); return err },
		"DecidedRequests":    func() error { _, err := m.DecidedRequests(ctx); return err },
		"Questions":          func() error { _, err := m.PendingQuestions(ctx); return err },
		"AnsweredQuestions":  func() error { _, err := m.AnsweredQuestions(ctx); return err },
		"RunningExecutions":  func() error { _, err := m.RunningExecutions(ctx); return err },
		"UnfinishedTurns":    func() error { _, err := m.UnfinishedTurns(ctx); return err },
		"UnansweredMessages": func() error { _, err := m.UnansweredMessages(ctx); return err },
		"RunningTurns":       func() error { _, err := m.CountRunningTurns(ctx, engine); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := ask(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
