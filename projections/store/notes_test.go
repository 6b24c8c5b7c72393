package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
)

// note is a row that clients see, with the lines that belong to it.
type note struct {
	Record
	Text string `db:"text"`
}

// line is a row that clients see as a part of its note.
type line struct {
	Record
	Note string `db:"note"`
	Text string `db:"text"`
}

const (
	noteCollection = "notes"
	lineCollection = "lines"

	recordColumns = `id TEXT PRIMARY KEY, created TEXT NOT NULL, updated TEXT NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, removed INTEGER NOT NULL`
)

// notes is the definition that the tests use.
var notes = Definition{
	Version: "1",
	Schema: `CREATE TABLE notes(` + recordColumns + `, text TEXT NOT NULL) STRICT;
		CREATE TABLE lines(` + recordColumns + `, note TEXT NOT NULL, text TEXT NOT NULL) STRICT;
		CREATE INDEX lines_note ON lines(note);`,
	Decode: func(e events.Event) (any, error) { return events.Decode(e) },
	Open: func(tx *Tx) Apply {
		notes, lines := OpenTable[note](tx, "notes", true), OpenTable[line](tx, "lines", false)
		return func(e events.Event, body any) error {
			n, found := notes.Get(e.Subject.ID)
			switch b := body.(type) {
			case events.Saved:
				var fields struct{ Note, Text string }
				if err := json.Unmarshal(b.Fields, &fields); err != nil {
					return fmt.Errorf("apply #%d: %w", e.Seq, err)
				}
				if e.Subject.Collection == lineCollection {
					l, _ := lines.Get(e.Subject.ID)
					l.Note, l.Text = fields.Note, fields.Text
					lines.Put(l)
					notes.Touch(l.Note)
					return nil
				}
				if n.Text = fields.Text; n.Removed {
					return fmt.Errorf("apply #%d: note %s was removed", e.Seq, n.ID)
				}
			case events.Deleted:
				if n.Removed = true; !found {
					return fmt.Errorf("apply #%d: note %s was never saved", e.Seq, n.ID)
				}
			default:
				return nil
			}
			notes.Put(n)
			return nil
		}
	},
}

func event(t testing.TB, collection, id string, d events.Data) events.Event {
	t.Helper()
	e, err := events.NewConfig(collection, id, "user:ann", d)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// saved returns the event of a note with a new text.
func saved(t testing.TB, id, text string) events.Event {
	t.Helper()
	fields, _ := json.Marshal(map[string]string{"text": text})
	return event(t, noteCollection, id, events.Saved{Fields: fields})
}

func deleted(t testing.TB, id string) events.Event {
	t.Helper()
	return event(t, noteCollection, id, events.Deleted{})
}

// added returns the event of a line that is added to a note.
func added(t testing.TB, id, note, text string) events.Event {
	t.Helper()
	fields, _ := json.Marshal(map[string]string{"note": note, "text": text})
	return event(t, lineCollection, id, events.Saved{Fields: fields})
}

// ignored returns an event that changes no row.
func ignored(t testing.TB) events.Event {
	t.Helper()
	e, err := events.NewAudit(events.ActorNobody, events.LoginFailed{Reason: "unknown"})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// many returns the events of n notes, each with three lines.
func many(t testing.TB, n int) (all []events.Event) {
	t.Helper()
	for i := range n {
		id := fmt.Sprint("note", i)
		all = append(all, saved(t, id, "text of "+id))
		for j := range 3 {
			all = append(all, added(t, fmt.Sprint(id, "line", j), id, "line"))
		}
	}
	return all
}

// idle opens read models without a worker; apply applies events to them.
func idle(t testing.TB) *Model {
	t.Helper()
	m, err := Open(t.Context(), expect.MemoryDir(t), eventstest.Log(t), notes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// apply applies events as the next ones of the log, 7 ms apart.
func apply(t testing.TB, m *Model, all ...events.Event) {
	t.Helper()
	if err := m.Apply(numbered(m.Seq(), all)); err != nil {
		t.Fatal(err)
	}
}

// numbered sets the sequences and times of events that follow the given sequence.
func numbered(after uint64, all []events.Event) []events.Event {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range all {
		all[i].Seq = after + uint64(i) + 1
		all[i].Time = start.Add(time.Duration(all[i].Seq) * 7 * time.Millisecond)
	}
	return all
}

// running opens read models and runs their worker until the test ends.
func running(t testing.TB, dir string, log *log.Log) *Model {
	t.Helper()
	m, err := Open(t.Context(), dir, log, notes)
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, m)
	t.Cleanup(func() { stop(); m.Close() })
	return m
}

// run runs the worker until stop is called.
func run(t testing.TB, m *Model) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the worker ended with %v", err)
		}
	})
}

// waited returns the model after it has applied seq.
func (m *Model) waited(t testing.TB, seq uint64) *Model {
	t.Helper()
	if err := m.Wait(t.Context(), seq); err != nil {
		t.Fatal(err)
	}
	return m
}

func digestOf(t testing.TB, m *Model) string {
	t.Helper()
	d, err := m.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// text returns the text of a note, "" if clients do not see the note.
func text(t testing.TB, m *Model, id string) string {
	t.Helper()
	n, _, err := First[note](t.Context(), m, "note "+id, "SELECT * FROM notes WHERE id='"+id+"' AND NOT removed", nil)
	is.New(t).NoErr(err)
	return n.Text
}
