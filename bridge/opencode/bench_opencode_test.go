package opencode_test

import (
	"database/sql"
	"flag"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/matryer/is"
	_ "modernc.org/sqlite"
)

var reconnectSessions = flag.Int("reconnect.sessions", 10_000, "number of sessions in BenchmarkReconnect")

// BenchmarkReconnect measures a reconnect to an OpenCode with many sessions. One of them has changed.
func BenchmarkReconnect(b *testing.B) {
	is := is.New(b)
	w := newDisconnected(b)
	session := w.session("first")
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(w.workspace), "*", "data", "opencode", "opencode.db"))
	is.NoErr(err)
	is.Equal(len(paths), 1)
	database, err := sql.Open("sqlite", paths[0]+"?_pragma=busy_timeout(10000)")
	is.NoErr(err)
	defer database.Close()
	const copies = "WITH RECURSIVE copies(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM copies WHERE n<?) "
	_, err = database.Exec(copies+`INSERT INTO event(id, aggregate_id, seq, type, data)
		SELECT id||n, 'ses_'||n, seq, type, replace(data, aggregate_id, 'ses_'||n) FROM event, copies
		WHERE aggregate_id=? AND seq=0`, *reconnectSessions, session)
	is.NoErr(err)
	_, err = database.Exec(copies+"INSERT INTO event_sequence(aggregate_id, seq) SELECT 'ses_'||n, 0 FROM copies",
		*reconnectSessions)
	is.NoErr(err)

	disconnect := w.connect()
	w.must(w.outbox.WaitConnected(b.Context()))
	for i := 0; b.Loop(); i++ {
		disconnect()
		w.rename(session, "renamed")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		disconnect = w.connect()
		w.must(w.outbox.WaitConnected(b.Context()))
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms")
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64((after.TotalAlloc-before.TotalAlloc)>>20), "allocated-MiB")
		is.Equal(w.title(session), "renamed")
	}
	disconnect()
}
