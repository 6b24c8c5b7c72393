package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	eventlog "pocketcoder/events/log"
	"pocketcoder/ops/expect"
)

// schemaOf returns the SQL of all tables and indexes.
func schemaOf(t *testing.T, m *Model) []string {
	t.Helper()
	rows, err := List[struct{ SQL string }](t.Context(), m, "schema",
		"SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name", nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range rows {
		all = append(all, r.SQL)
	}
	return all
}

func TestARebuiltFileHasAllIndexes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m := running(t, expect.MemoryDir(t), log)
	last, err := log.AppendAll(t.Context(), many(t, 20))
	is.NoErr(err)
	before := schemaOf(t, m.waited(t, last))
	_, err = m.Rebuild(t.Context(), func(done, total uint64) {})
	is.NoErr(err)
	is.Equal(schemaOf(t, m), before)
}

func TestARebuildSetsTheSameEventsAside(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m := running(t, expect.MemoryDir(t), log)
	undecodable := saved(t, "note1", "words")
	undecodable.Data = []byte("3")
	last, err := log.AppendAll(t.Context(), append(many(t, 20), undecodable, deleted(t, "nothing"),
		saved(t, "note1", "more")))
	is.NoErr(err)
	before := digestOf(t, m.waited(t, last))
	r, err := m.Rebuild(t.Context(), func(done, total uint64) {})
	is.NoErr(err)
	is.Equal(r.After, before)
	letters, err := m.DeadLetters(t.Context(), 1)
	is.NoErr(err)
	is.Equal(letters.Count, 2)
}

func TestARebuildAfterAKilledOneBeginsAnew(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m := running(t, expect.MemoryDir(t), log)
	last, err := log.AppendAll(t.Context(), many(t, 20))
	is.NoErr(err)
	before := digestOf(t, m.waited(t, last))
	left, err := openBulk(t.Context(), m.path()+".building", notes)
	is.NoErr(err)
	wrong := saved(t, "wrong", "words")
	wrong.Seq = 1
	is.NoErr(left.commit(decodeAll(notes.Decode, []events.Event{wrong})))
	is.NoErr(left.close())
	r, err := m.Rebuild(t.Context(), func(done, total uint64) {})
	is.NoErr(err)
	is.Equal(r.After, before)
	is.Equal(r.Events, last)
}

func TestALongLogIsServedOnceAllOfItIsApplied(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	last, err := log.AppendAll(t.Context(), many(t, bulkEvents/4+500))
	is.NoErr(err)
	m := running(t, expect.MemoryDir(t), log)
	is.NoErr(m.Wait(t.Context(), 1))
	is.Equal(m.Seq(), last)
	is.Equal(m.Loaded(), last)
	last, err = log.Append(t.Context(), saved(t, "note1", "after it"))
	is.NoErr(err)
	is.Equal(text(t, m.waited(t, last), "note1"), "after it")

	batches := idle(t)
	is.NoErr(log.Read(t.Context(), 0, nil, func(b eventlog.Batch) error {
		is.NoErr(batches.Apply(b.Events))
		if b.Behind == 0 {
			return events.ErrStop
		}
		return nil
	}))
	is.Equal(digestOf(t, m), digestOf(t, batches))
}

func TestAPreparedFileIsThereWhenItsVersionStarts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log, dir, next := eventstest.Log(t), expect.MemoryDir(t), notes
	next.Version = "2"
	old := running(t, dir, log)
	last, err := log.AppendAll(t.Context(), many(t, 20))
	is.NoErr(err)
	old.waited(t, last)
	is.NoErr(os.Mkdir(filepath.Join(dir, "preparing-1"), 0o700)) // killed
	n, err := Prepare(t.Context(), dir, log, next, func(done, total uint64) { is.True(done <= total) })
	is.NoErr(err)
	is.Equal(n, last)
	_, err = Prepare(t.Context(), dir, log, next, nil)
	is.True(errors.Is(err, ErrPrepared))
	_, err = Prepare(t.Context(), dir, log, notes, nil) // the running version
	is.True(errors.Is(err, ErrPrepared))
	left, err := filepath.Glob(filepath.Join(dir, "preparing-*"))
	is.NoErr(err)
	is.Equal(len(left), 0)

	last, err = log.AppendAll(t.Context(), many(t, 200)) // the old version was behind for a moment
	is.NoErr(err)
	old.waited(t, last)
	expect.Eventually(t, "caught up", old.CaughtUp)
	digest, schema := digestOf(t, old), schemaOf(t, old)
	m, err := Open(t.Context(), dir, log, next) // it removes the file of the old version
	is.NoErr(err)
	defer m.Close()
	is.Equal(m.ReplacedFile(), "")
	is.Equal(m.Seq(), n)
	stop := run(t, m)
	defer stop()
	is.Equal(digestOf(t, m.waited(t, last)), digest)
	is.Equal(schemaOf(t, m), schema)
}
