package store

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
)

// schemaOf returns the SQL of all tables and indexes.
func schemaOf(t *testing.T, m *Model) []string {
	t.Helper()
	rows, err := List[struct{ SQL string }](t.Context(), m, "schema", "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name", nil)
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
	m := running(t, t.TempDir(), log)
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
	m := running(t, t.TempDir(), log)
	undecodable := saved(t, "note1", "words")
	undecodable.Data = []byte("3")
	last, err := log.AppendAll(t.Context(), append(many(t, 20), undecodable, deleted(t, "nothing"), saved(t, "note1", "more")))
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
	m := running(t, t.TempDir(), log)
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
