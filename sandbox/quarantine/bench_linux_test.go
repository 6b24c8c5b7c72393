package quarantine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// BenchmarkBegin measures the start of a command in a top directory with many files.
func BenchmarkBegin(b *testing.B) {
	q := open(b, false, false)
	for n := range 30_000 {
		q.create(b, fmt.Sprint(n), "")
	}
	for b.Loop() {
		s, err := q.Begin(Command{Exec: "exec", Chat: "chat", Stop: func() {}})
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

// BenchmarkWindow measures how long a protected name stays in the workspace.
func BenchmarkWindow(b *testing.B) {
	q := open(b, false, false)
	s, err := q.Begin(Command{Exec: "exec", Chat: "chat", Stop: func() {}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	path := filepath.Join(q.Workspace, ".envrc")
	var took []time.Duration
	for b.Loop() {
		time.Sleep(time.Millisecond) // so that the watch sleeps too
		began := time.Now()
		if err := os.WriteFile(path, []byte("use flake\n"), 0o644); err != nil {
			b.Fatal(err)
		}
		for err = nil; err == nil; _, err = os.Lstat(path) {
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	for name, d := range map[string]time.Duration{"p50-ms": took[len(took)/2], "p99-ms": took[len(took)*99/100],
		"max-ms": took[len(took)-1]} {
		b.ReportMetric(float64(d.Microseconds())/1000, name)
	}
}
