package projections_test

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
	"pocketcoder/projections/store"
)

var update = flag.Bool("update", false, "accept the read models as they are now, which makes every installation compute them again")

// Every file in testdata/logs is a whole log as some version has stored it: messages, a line each. They are never
// changed. The recordings are what OpenCode said. Their read models make the version.
func TestTheVersionFollowsFromTheReadModelsOfStoredLogs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var got strings.Builder
	schema, err := store.List[struct{ SQL string }](t.Context(), still(t).Model, "schema",
		"SELECT coalesce(sql, '') AS sql FROM sqlite_schema ORDER BY name", nil)
	is.NoErr(err)
	fmt.Fprintf(&got, "schema %x\n", sha256.Sum256([]byte(fmt.Sprint(schema))))
	files, err := filepath.Glob("testdata/*.jsonl")
	is.NoErr(err)
	is.True(len(files) > 0)
	for _, file := range files {
		m, name := still(t), strings.TrimSuffix(filepath.Base(file), ".jsonl")
		feed(t, m, recording(t, name)...)
		rows, err := m.Digest(t.Context())
		is.NoErr(err)
		fmt.Fprintf(&got, "%s %s\n", name, rows)
	}
	files, err = filepath.Glob("testdata/logs/*.jsonl")
	is.NoErr(err)
	is.True(len(files) > 0)
	for _, file := range files {
		fmt.Fprintf(&got, "%s %s\n", filepath.Base(file), ofStoredLog(t, file))
	}
	const golden = "testdata/readmodel.golden"
	if *update {
		is.NoErr(os.WriteFile(golden, []byte(got.String()), 0o644))
	}
	if want := expect.ReadFile(t, golden); got.String() != want {
		t.Fatalf("the read models of the same events have changed: accept them with -update; got\n%swant\n%s", got.String(),
			want)
	}
}

// ofStoredLog is the digest of the read models of a stored log.
func ofStoredLog(t *testing.T, file string) string {
	t.Helper()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	m := running(t, expect.MemoryDir(t), eventstest.Open(t, nc))
	is.NoErr(m.Wait(t.Context(), storeAgain(t, nc, file)))
	letters, err := m.DeadLetters(t.Context(), 3)
	is.NoErr(err)
	is.Equal(letters, store.DeadLetters{Oldest: []store.DeadLetter{}})
	statuses, err := store.List[struct{ Status string }](t.Context(), m.Model, "statuses",
		"SELECT status FROM executions ORDER BY position", nil)
	is.NoErr(err)
	is.Equal(fmt.Sprint(statuses), "[{completed} {completed} {failed}]")
	rows, err := m.Digest(t.Context())
	is.NoErr(err)
	return rows
}

// storeAgain stores the messages of a file as they are, and returns the sequence of the last one.
func storeAgain(t *testing.T, nc *nats.Conn, file string) (last uint64) {
	t.Helper()
	is := is.New(t)
	js, err := jetstream.New(nc)
	is.NoErr(err)
	for line := range strings.Lines(expect.ReadFile(t, file)) {
		var m struct {
			Subject string
			Header  nats.Header
			Data    string
		}
		is.NoErr(json.Unmarshal([]byte(line), &m))
		ack, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: m.Subject, Header: m.Header, Data: []byte(m.Data)})
		is.NoErr(err)
		last = ack.Sequence
	}
	return last
}

// OpenCode may change a form before we know the new one. It says so in the type that it stores.
func TestAnOpenCodeEventOfAnUnknownFormIsADeadLetterAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	s := &eventBuilder{t: t}
	later, err := events.NewOpenCode(chatID, engine, "evt_later", 0,
		events.OpenCode{Type: "message.updated", Form: 2, Properties: []byte(`{"sessionID":"ses_own","info":[]}`)})
	is.NoErr(err)
	_, err = log.AppendAll(t.Context(), []events.Event{s.created(), later})
	is.NoErr(err)
	last, err := log.Append(t.Context(), s.submitted("m1"))
	is.NoErr(err)
	m := running(t, expect.MemoryDir(t), log)
	is.NoErr(m.Wait(t.Context(), last))
	letters, err := m.DeadLetters(t.Context(), 10)
	is.NoErr(err)
	is.Equal(letters.Count, 1)
	expect.Contains(t, letters.Oldest[0].Error, "decode #2 "+later.RawSubject+
		": form 2 is newer than 1, the newest this PocketCoder reads")
	is.Equal(len(shown(t, m)), 1)
}
