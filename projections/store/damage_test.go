package store

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
)

func TestUnusableFileIsMovedAsideAndMadeAgain(t *testing.T) {
	t.Parallel()
	fault := expect.CountFault(t, "files have the same content again")
	for name, spoil := range map[string]func(t *testing.T, path string) error{
		"no database": func(_ *testing.T, path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("not SQLite ", 1000)), 0o600)
		},
		"damaged page": func(_ *testing.T, path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(make([]byte, 20000), 4096)
			return errors.Join(err, f.Close())
		},
		"cut short": func(_ *testing.T, path string) error { return os.Truncate(path, 5000) },
		"other tables": func(t *testing.T, path string) error {
			f, err := openFile(t.Context(), path, notes)
			if err != nil {
				return err
			}
			return errors.Join(f.tx.exec("PRAGMA user_version=7"), f.close())
		},
		"another log": func(t *testing.T, path string) error {
			f, err := openFile(t.Context(), path, notes)
			if err != nil {
				return err
			}
			return errors.Join(f.tx.exec("UPDATE checkpoint SET seq=1000000"), f.close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			log, dir := eventstest.Log(t), expect.MemoryDir(t)
			last, err := log.AppendAll(t.Context(), many(t, 20))
			is.NoErr(err)
			m, err := Open(t.Context(), dir, log, notes)
			is.NoErr(err)
			stop := run(t, m)
			want := digestOf(t, m.waited(t, last))
			stop()
			is.NoErr(m.Close())
			is.NoErr(spoil(t, m.path()))

			again := running(t, dir, log)
			expect.Eventually(t, "set aside", func() bool { return strings.Contains(again.ReplacedFile(), m.path()+".corrupt-1") })
			_, err = os.Stat(m.path() + ".corrupt-1")
			is.NoErr(err)
			is.Equal(digestOf(t, again.waited(t, last)), want)
			fault.Tried()
			fault.Saw(1)
		})
	}
}

func TestFileDamagedWhileInUseIsMadeAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log, dir := eventstest.Log(t), expect.MemoryDir(t)
	all := many(t, 200)
	half, err := log.AppendAll(t.Context(), all[:600])
	is.NoErr(err)
	m, err := Open(t.Context(), dir, log, notes)
	is.NoErr(err)
	defer m.Close()
	stop := run(t, m)
	is.NoErr(m.Wait(t.Context(), half))
	stop()
	is.NoErr(m.current.tx.exec("PRAGMA wal_checkpoint(TRUNCATE)"))
	f, err := os.OpenFile(m.path(), os.O_WRONLY, 0)
	is.NoErr(err)
	_, err = f.WriteAt([]byte(strings.Repeat("x", 200000)), 4096)
	is.NoErr(err)
	is.NoErr(f.Close())
	is.NoErr(m.current.tx.exec("PRAGMA shrink_memory")) // forget the pages it has read

	defer run(t, m)()
	last, err := log.AppendAll(t.Context(), all[600:])
	is.NoErr(err)
	is.NoErr(m.Wait(t.Context(), last))
	expect.Contains(t, m.ReplacedFile(), ".corrupt-1")
	is.Equal(text(t, m, "note199"), "text of note199")
}

// A system that runs for months, with pages that nothing reads.
func TestDamageOfAFileThatNothingReadsIsFound(t *testing.T) {
	t.Parallel()
	fault := expect.CountFault(t, "damaged file found and computed again")
	is := is.New(t)
	log, dir := eventstest.Log(t), expect.MemoryDir(t)
	all := many(t, 200)
	last, err := log.AppendAll(t.Context(), all[:599])
	is.NoErr(err)
	m, err := Open(t.Context(), dir, log, notes)
	is.NoErr(err)
	m.firstCheck, m.nextCheck = time.Nanosecond, 10*time.Millisecond
	stop := run(t, m)
	defer func() { stop(); m.Close() }()
	is.NoErr(m.Wait(t.Context(), last))
	is.NoErr(m.check(t.Context()))
	m.write.Lock()
	is.NoErr(m.current.tx.exec("PRAGMA wal_checkpoint(TRUNCATE)"))
	path := m.path()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	is.NoErr(err)
	_, err = f.WriteAt([]byte(strings.Repeat("x", 200000)), 4096)
	is.NoErr(err)
	is.NoErr(f.Close())
	m.write.Unlock()
	expect.Eventually(t, "the file is moved aside", func() bool { return m.ReplacedFile() != "" })
	last, err = log.AppendAll(t.Context(), all[599:])
	is.NoErr(err)
	is.NoErr(m.Wait(t.Context(), last))
	is.Equal(text(t, m, "note198"), "text of note198")
	fault.Tried()
	fault.Saw(1)
}

func TestPoisonIsSetAsideAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := idle(t)
	apply(t, m, saved(t, "a", "one"), deleted(t, "nothing"), event(t, noteCollection, "b",
		events.Saved{Fields: []byte("[1]")}), ignored(t), saved(t, "a", "two"))
	n, err := m.DeadLetters(t.Context(), 0)
	is.NoErr(err)
	is.Equal(n.Count, 2)
	is.Equal(text(t, m, "a"), "two")
	type letter struct {
		Seq                  uint64
		Subject, Error, Data string
	}
	letters, err := List[letter](t.Context(), m, "dead letters", "SELECT * FROM dead_letters ORDER BY seq", nil)
	is.NoErr(err)
	is.Equal(letters[0], letter{2, "evt.config.notes.nothing.deleted", "apply #2: note nothing was never saved", "{}"})
	is.Equal(letters[1].Seq, uint64(3))
}

func TestFullDiskIsNobodysPoison(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := idle(t)
	apply(t, m, saved(t, "a", "one"))
	is.NoErr(m.current.tx.exec("PRAGMA max_page_count=1")) // the file may not grow any more
	big := numbered(1, []events.Event{saved(t, "b", strings.Repeat("words ", 20000))})
	err := m.Apply(big)
	is.True(err != nil)
	expect.Contains(t, err.Error(), "full")
	is.NoErr(m.current.tx.exec("PRAGMA max_page_count=1000000"))
	is.NoErr(m.Apply(big))
	n, err := m.DeadLetters(t.Context(), 0)
	is.NoErr(err)
	is.Equal(n.Count, 0)
	is.Equal(len(text(t, m, "b")), 120000)
}

func TestRebuildRepairsADamagedFile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m := running(t, expect.MemoryDir(t), log)
	last, err := log.AppendAll(t.Context(), many(t, 20))
	is.NoErr(err)
	want := digestOf(t, m.waited(t, last))
	is.NoErr(m.current.tx.exec("DELETE FROM lines; UPDATE notes SET text='wrong'")) // another program wrote to it
	r, err := m.Rebuild(t.Context(), func(done, total uint64) {})
	is.NoErr(err)
	is.True(r.Before != want)
	is.Equal(r.After, want)
	is.Equal(digestOf(t, m), want)
}
