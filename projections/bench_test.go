package projections

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
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

// BenchmarkRebuild replays a log of real OpenCode events: all recordings, over and over with ids of their own.
func BenchmarkRebuild(b *testing.B) {
	is := is.New(b)
	log := eventstest.Log(b)
	all := []events.Event{own(b, user, events.ChatCreated{Title: "Chat", User: "ann", Engine: engine})}
	var oc []events.Event
	for _, name := range recordings(b) {
		oc = append(oc, recording(b, name)...)
	}
	all = append(all, copies(b, oc, 40)...)
	last, err := log.AppendAll(b.Context(), all)
	is.NoErr(err)
	m := running(b, b.TempDir(), log)
	is.NoErr(m.Wait(b.Context(), last))
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
