package opencode_test

import (
	"flag"
	"runtime"
	"testing"
	"time"

	"github.com/matryer/is"
)

var reconnectSessions = flag.Int("reconnect.sessions", 10_000, "number of sessions in BenchmarkReconnect")

// BenchmarkReconnect measures a reconnect to an OpenCode with many sessions. One of them has changed.
func BenchmarkReconnect(b *testing.B) {
	is := is.New(b)
	w := newDisconnected(b)
	session := w.session("first")
	w.copySession(session, *reconnectSessions)

	disconnect := w.connect()
	w.must(w.outbox.Ingest.WaitConnected(b.Context()))
	for i := 0; b.Loop(); i++ {
		disconnect()
		w.rename(session, "renamed")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		disconnect = w.connect()
		w.must(w.outbox.Ingest.WaitConnected(b.Context()))
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms")
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64((after.TotalAlloc-before.TotalAlloc)>>20), "allocated-MiB")
		is.Equal(w.title(session), "renamed")
	}
	disconnect()
}
