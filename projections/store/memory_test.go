package store

import (
	"database/sql"
	"testing"

	"github.com/matryer/is"
	"github.com/pocketbase/dbx"

	"pocketcoder/events"
)

// textIn returns the text of note a.
func textIn(t testing.TB, m *Memory) (text string) {
	t.Helper()
	err := m.View(t.Context(), func(db dbx.Builder) error {
		return db.NewQuery("SELECT text FROM notes WHERE id='a'").Row(&text)
	})
	is.New(t).NoErr(err)
	return text
}

func TestMemoryFreesItsMemory(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, err := OpenMemory(t.Context(), notes, nil)
	is.NoErr(err)
	var db *sql.DB
	is.NoErr(m.View(t.Context(), func(b dbx.Builder) error {
		db = b.(*dbx.SqliteBuilder).DB().DB()
		return nil
	}))
	is.Equal(db.Stats().OpenConnections, 1)
	is.NoErr(m.Close())
	is.Equal(db.Stats().OpenConnections, 0)
}

func TestSavedReadModelsGoOnWhereTheyWereSaved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	all := numbered(1, []events.Event{ignored(t), saved(t, "a", "one"), saved(t, "a", "two"), saved(t, "a", "three")})
	m, err := OpenMemory(t.Context(), notes, nil)
	is.NoErr(err)
	defer m.Close()
	is.NoErr(m.Apply(all[:2]))
	copied, err := m.Save()
	is.NoErr(err)
	is.NoErr(m.Apply(all[2:]))
	is.Equal(textIn(t, m), "three")

	again, err := OpenMemory(t.Context(), notes, copied)
	is.NoErr(err)
	defer again.Close()
	is.Equal(textIn(t, again), "one")
	is.NoErr(again.Apply(all[:3])) // it holds the first two already
	is.Equal(textIn(t, again), "two")
	is.Equal(textIn(t, m), "three")
	size, err := again.Size(t.Context())
	is.NoErr(err)
	is.Equal(size, len(copied))

	is.Equal(m.View(t.Context(), func(dbx.Builder) error { return sql.ErrNoRows }), sql.ErrNoRows) // unchanged
	is.Equal(textIn(t, m), "three")
	other := notes
	other.Schema += "CREATE TABLE more(id TEXT);"
	_, err = OpenMemory(t.Context(), other, copied)
	is.True(err != nil) // other tables
}
