package projections

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/expect"
)

func digestOf(t testing.TB, m *Model) string {
	t.Helper()
	d, err := m.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestWriterReadsItsOwnWrites(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m, s := running(t, t.TempDir(), log), &story{t: t}
	expect.Eventually(t, "caught up with an empty log", m.CaughtUp)
	_, err := log.Append(t.Context(), s.created())
	is.NoErr(err)
	for i := range 50 {
		id := fmt.Sprintf("m%d", i)
		seq, err := log.Append(t.Context(), s.submitted(id))
		is.NoErr(err)
		is.NoErr(m.Wait(t.Context(), seq))
		_, found, err := m.Message(t.Context(), id)
		is.NoErr(err)
		is.True(found)
	}
	is.True(m.CaughtUp())
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := still(t)
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error)
	go func() { waited <- m.Wait(ctx, 1) }()
	cancel()
	is.True(errors.Is(<-waited, context.Canceled))
}

func TestRestartGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log, dir := eventstest.Log(t), t.TempDir()
	all := conversation(t, "9i-perm-task")
	half, err := log.AppendAll(t.Context(), all[:40])
	is.NoErr(err)
	m, err := Open(t.Context(), dir, log)
	is.NoErr(err)
	stop := work(t, m)
	is.NoErr(m.Wait(t.Context(), half))
	stop()
	is.NoErr(m.Close())

	m = running(t, dir, log)
	is.Equal(m.Seq(), half)
	is.Equal(m.SetAside(), "")
	expect.Eventually(t, "caught up with nothing new", m.CaughtUp)
	last, err := log.AppendAll(t.Context(), all[40:])
	is.NoErr(err)
	is.NoErr(m.Wait(t.Context(), last))
	is.Equal(digestOf(t, m), digestOf(t, running(t, t.TempDir(), log).waited(t, last)))
}

// waited gives the model when it has applied seq.
func (m *Model) waited(t testing.TB, seq uint64) *Model {
	t.Helper()
	if err := m.Wait(t.Context(), seq); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestFilesOfOtherVersionsGoWhenTheNewOneHasCaughtUp(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := t.TempDir()
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
	log, dir := eventstest.Log(t), t.TempDir()
	m := running(t, dir, log)
	var last uint64
	for i, name := range []string{"9i-perm-task", "14-question", "18-abort-text", "85-abort-parent"} {
		all := conversation(t, name)
		if i > 0 {
			all = all[4:] // the chat is there
		}
		for _, e := range all {
			seq, err := log.Append(t.Context(), e)
			is.NoErr(err)
			last = seq
		}
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

	s := &story{t: t}
	seq, err := log.Append(t.Context(), s.submitted("m9")) // and it goes on
	is.NoErr(err)
	is.NoErr(m.Wait(t.Context(), seq))
	_, found, err := m.Message(t.Context(), "m9")
	is.NoErr(err)
	is.True(found)
}

func TestReadModelsServeWhileTheyAreRebuilt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m, s := running(t, t.TempDir(), log), &story{t: t}
	last, err := log.AppendAll(t.Context(), append([]events.Event{s.created()}, copies(t, recording(t, "9i-perm-task"), 20)...))
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
		seq, err := log.Append(t.Context(), s.submitted("meanwhile"))
		is.NoErr(err)
		is.NoErr(m.Wait(t.Context(), seq))
		last = seq
	})
	is.NoErr(err)
	is.True(begun)
	is.True(m.Seq() >= last)
	_, found, err := m.Message(t.Context(), "meanwhile")
	is.NoErr(err)
	is.True(found)
}
