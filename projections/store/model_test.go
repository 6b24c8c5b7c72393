package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
)

func TestWriterReadsItsOwnWrites(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m := running(t, expect.MemoryDir(t), log)
	expect.Eventually(t, "caught up with an empty log", m.CaughtUp)
	for i := range 50 {
		id := fmt.Sprint("note", i)
		seq, err := log.Append(t.Context(), saved(t, id, "words"))
		is.NoErr(err)
		is.NoErr(m.Wait(t.Context(), seq))
		is.Equal(text(t, m, id), "words")
	}
	is.True(m.CaughtUp())
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := idle(t)
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error)
	go func() { waited <- m.Wait(ctx, 1) }()
	cancel()
	is.True(errors.Is(<-waited, context.Canceled))
}

func TestRestartGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log, dir := eventstest.Log(t), expect.MemoryDir(t)
	all := many(t, 20)
	half, err := log.AppendAll(t.Context(), all[:40])
	is.NoErr(err)
	m, err := Open(t.Context(), dir, log, notes)
	is.NoErr(err)
	stop := run(t, m)
	is.NoErr(m.Wait(t.Context(), half))
	stop()
	is.NoErr(m.Close())

	m = running(t, dir, log)
	is.Equal(m.Seq(), half)
	is.Equal(m.ReplacedFile(), "")
	expect.Eventually(t, "caught up with nothing new", m.CaughtUp)
	last, err := log.AppendAll(t.Context(), all[40:])
	is.NoErr(err)
	is.NoErr(m.Wait(t.Context(), last))
	is.Equal(digestOf(t, m), digestOf(t, running(t, expect.MemoryDir(t), log).waited(t, last)))
}

func TestFilesOfOtherVersionsGoWhenTheNewOneHasCaughtUp(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := expect.MemoryDir(t)
	for _, name := range []string{"readmodel.v0.db", "readmodel.v0.db-wal", "other.db"} {
		is.NoErr(os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	m := running(t, dir, eventstest.Log(t))
	expect.Eventually(t, "the old version is gone", func() bool {
		left, err := filepath.Glob(filepath.Join(dir, "readmodel.v0*"))
		return err == nil && len(left) == 0
	})
	_, err := os.Stat(filepath.Join(dir, "other.db"))
	is.NoErr(err)
	_, err = os.Stat(m.path())
	is.NoErr(err)
}

func TestRebuildGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log, dir := eventstest.Log(t), expect.MemoryDir(t)
	m := running(t, dir, log)
	var last uint64
	for _, e := range append(many(t, 20), deleted(t, "note1"), deleted(t, "nothing"), saved(t, "note2", "other")) {
		seq, err := log.Append(t.Context(), e)
		is.NoErr(err)
		last = seq
	}
	is.NoErr(m.Wait(t.Context(), last))
	before := digestOf(t, m)
	var steps []uint64
	r, err := m.Rebuild(t.Context(), func(done, total uint64) {
		steps = append(steps, done)
		is.True(done <= total)
	})
	is.NoErr(err)
	is.Equal(r.Events, last)
	is.Equal(r.Before, before)
	is.Equal(r.After, before)
	is.Equal(steps[len(steps)-1], last)
	is.Equal(digestOf(t, m), before)
	left, err := filepath.Glob(filepath.Join(dir, "*.building*"))
	is.NoErr(err)
	is.Equal(len(left), 0)

	seq, err := log.Append(t.Context(), saved(t, "note99", "after the rebuild")) // the worker continues
	is.NoErr(err)
	is.NoErr(m.Wait(t.Context(), seq))
	is.Equal(text(t, m, "note99"), "after the rebuild")
}

func TestReadModelsServeWhileTheyAreRebuilt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m := running(t, expect.MemoryDir(t), log)
	last, err := log.AppendAll(t.Context(), many(t, 200))
	is.NoErr(err)
	is.NoErr(m.Wait(t.Context(), last))
	begun := false
	_, err = m.Rebuild(t.Context(), func(done, total uint64) {
		if begun {
			return
		}
		begun = true
		_, err := m.Rebuild(t.Context(), nil)
		is.True(err != nil) // one at a time
		seq, err := log.Append(t.Context(), saved(t, "meanwhile", "words"))
		is.NoErr(err)
		is.NoErr(m.Wait(t.Context(), seq))
		last = seq
	})
	is.NoErr(err)
	is.True(begun)
	is.True(m.Seq() >= last)
	is.Equal(text(t, m, "meanwhile"), "words")
}

func TestLargeRowsAreNotKeptAfterABatch(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := idle(t)
	kept := func() int { return len(m.current.tx.tables[0].(*Table[note]).rows) }
	apply(t, m, saved(t, "small", "a"))
	is.Equal(kept(), 1)
	apply(t, m, saved(t, "large", strings.Repeat("x", 2<<20)))
	is.Equal(kept(), 0)
}
