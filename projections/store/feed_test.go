package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/pocketbase/dbx"
	"pgregory.net/rapid"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
)

// next returns the changes of a feed as sorted lines, and their sequence.
func next(t testing.TB, f *Feed) (lines []string, seq uint64) {
	t.Helper()
	changes, seq, err := f.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s %s created=%t removed=%t", c.Table, c.ID, c.Created, c.Removed))
	}
	slices.Sort(lines)
	return lines, seq
}

func TestFeedReportsEachRowOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := idle(t)
	apply(t, m, saved(t, "a", "one"))
	f := m.Feed()
	defer f.Close()
	apply(t, m, saved(t, "b", "one"), saved(t, "a", "two"))
	apply(t, m, saved(t, "a", "three"), saved(t, "c", "one"), deleted(t, "c"))
	lines, seq := next(t, f)
	is.Equal(lines, []string{"notes a created=false removed=false", "notes b created=true removed=false",
		"notes c created=true removed=true"})
	is.Equal(seq, uint64(6))

	apply(t, m, ignored(t))
	lines, seq = next(t, f)
	is.Equal(len(lines), 0)
	is.Equal(seq, uint64(7))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := f.Next(ctx)
	is.True(errors.Is(err, context.Canceled)) // no further change
}

func TestPartsAreChangesOfTheirRow(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := idle(t)
	apply(t, m, saved(t, "a", "one"))
	f := m.Feed()
	defer f.Close()
	apply(t, m, added(t, "l1", "a", "words"))
	lines, _ := next(t, f)
	is.Equal(lines, []string{"notes a created=false removed=false"})
	apply(t, m, deleted(t, "a"))
	lines, _ = next(t, f)
	is.Equal(lines, []string{"notes a created=false removed=true"})
	apply(t, m, added(t, "l2", "a", "late"), deleted(t, "a")) // a removed row has no further changes
	lines, _ = next(t, f)
	expect.Lacks(t, strings.Join(lines, "\n"), "removed=false")
}

func TestSlowSubscriberNeedsNoMoreMemoryThanThereAreRows(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := idle(t)
	f, closed := m.Feed(), m.Feed()
	apply(t, m, saved(t, "a", "one"))
	closed.Close()
	for i := range 200 {
		apply(t, m, saved(t, "a", fmt.Sprint(i)))
	}
	is.Equal(len(f.changes), 1)
	is.Equal(len(closed.changes), 1) // from before Close
	is.Equal(len(m.feeds), 1)
	lines, seq := next(t, f)
	is.Equal(lines, []string{"notes a created=true removed=false"})
	is.Equal(seq, uint64(201))
}

func TestFeedDoesNotReportWhatWasSetAside(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := idle(t)
	apply(t, m, saved(t, "a", "one"))
	f := m.Feed()
	defer f.Close()
	is.NoErr(m.current.tx.exec("CREATE TEMP TRIGGER refuses BEFORE INSERT ON lines BEGIN SELECT RAISE(ABORT, 'no'); END"))
	apply(t, m, added(t, "l1", "a", "words"), saved(t, "b", "one")) // the row of a is written before its line is
	lines, seq := next(t, f)
	is.Equal(lines, []string{"notes b created=true removed=false"})
	is.Equal(seq, uint64(3))
	n, err := m.DeadLetters(t.Context(), 0)
	is.NoErr(err)
	is.Equal(n.Count, 1)
}

func TestWorkerWakesTheSubscriber(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m := running(t, expect.MemoryDir(t), log)
	f := m.Feed()
	defer f.Close()
	last, err := log.Append(t.Context(), saved(t, "a", "one"))
	is.NoErr(err)
	lines, seq := next(t, f)
	is.Equal(lines, []string{"notes a created=true removed=false"})
	is.Equal(seq, last)
	is.NoErr(m.View(t.Context(), func(db dbx.Builder, at uint64) error {
		is.True(at >= seq) // the view has the reported changes
		is.Equal(count(t, db, "notes"), 1)
		return nil
	}))
}

func TestRebuildRepeatsNoChange(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m := running(t, expect.MemoryDir(t), log)
	last, err := log.AppendAll(t.Context(), many(t, 20))
	is.NoErr(err)
	m.waited(t, last)
	f := m.Feed()
	defer f.Close()
	_, err = m.Rebuild(t.Context(), func(done, total uint64) {})
	is.NoErr(err)
	last, err = log.Append(t.Context(), saved(t, "a", "one"))
	is.NoErr(err)
	lines, seq := next(t, f)
	is.Equal(lines, []string{"notes a created=true removed=false"})
	is.Equal(seq, last)
}

func TestFeedReportsTheChangesThatARebuildCaughtUpWith(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m, err := Open(t.Context(), expect.MemoryDir(t), log, notes) // its worker is behind
	is.NoErr(err)
	defer m.Close()
	f := m.Feed()
	defer f.Close()
	last, err := log.AppendAll(t.Context(), many(t, 3))
	is.NoErr(err)
	m.write.Lock()
	err = m.catchUp(t.Context(), m.current, last)
	m.write.Unlock()
	is.NoErr(err)
	lines, seq := next(t, f)
	is.Equal(len(lines), 3)
	is.Equal(seq, last)
}

// mirror is what a subscriber knows of the notes: when each was last updated.
type mirror map[string]string

// shownNotes returns that of all notes that clients see.
func shownNotes(r *rapid.T, db dbx.Builder) mirror {
	all := mirror{}
	var rows []Record
	if err := db.NewQuery("SELECT id, created, updated, first_seq, last_seq, removed FROM notes WHERE NOT removed").All(&rows); err != nil {
		r.Fatal(err)
	}
	for _, row := range rows {
		all[row.ID] = row.Updated
	}
	return all
}

// take applies changes; each must be a real one, and afterwards the mirror must equal now.
func (m mirror) take(r *rapid.T, now mirror, changes []Change) {
	for _, c := range changes {
		updated, shown := now[c.ID]
		known, had := m[c.ID]
		switch {
		case c.Removed == shown:
			r.Fatalf("%+v, shown %t", c, shown)
		case c.Removed && !had && !c.Created:
			r.Fatalf("%+v was never there", c)
		case !c.Removed && had == c.Created:
			r.Fatalf("%+v, known %t", c, had)
		case !c.Removed && updated == known:
			r.Fatalf("%+v has not changed", c)
		}
		if delete(m, c.ID); shown {
			m[c.ID] = updated
		}
	}
	if !maps.Equal(m, now) {
		r.Fatalf("the subscriber knows %v of %v", m, now)
	}
}

// changesAfter returns the changes after seq that the sequences of the rows show.
func changesAfter(r *rapid.T, db dbx.Builder, seq uint64) (changes []Change) {
	var rows []Record
	if err := db.NewQuery("SELECT id, first_seq, last_seq, removed FROM notes WHERE last_seq > {:seq}").Bind(dbx.Params{"seq": seq}).All(&rows); err != nil {
		r.Fatal(err)
	}
	for _, row := range rows {
		changes = append(changes, Change{"notes", row.ID, uint64(row.First) > seq, row.Removed})
	}
	return changes
}

// check compares what a feed reports, and what the rows report to a subscriber without a feed, with the rows that
// clients see. While a rebuilt file is behind, the feed is silent.
func check(t testing.TB, r *rapid.T, m *Model, f *Feed, fed, read mirror) {
	before := f.seq
	if before >= m.published || m.Seq() < m.published {
		return
	}
	changes, seq, err := f.Next(t.Context())
	if err != nil {
		r.Fatal(err)
	}
	err = m.View(t.Context(), func(db dbx.Builder, at uint64) error {
		if at != seq {
			r.Fatalf("the feed is at %d, the view at %d", seq, at)
		}
		now := shownNotes(r, db)
		fed.take(r, now, changes)
		read.take(r, now, changesAfter(r, db, before))
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
}

func TestSubscribersKnowEveryRowWhateverTheBatchesAndTheFile(t *testing.T) {
	t.Parallel()
	id := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
	expect.Property(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(expect.MemoryDir(t), "")
		if err != nil {
			r.Fatal(err)
		}
		var history []events.Event
		for i := range rapid.IntRange(1, 80).Draw(r, "events") {
			history = append(history, rapid.SampledFrom([]events.Event{
				saved(t, id.Draw(r, "id"), fmt.Sprint(i%3)), saved(t, id.Draw(r, "id"), fmt.Sprint(i%3)),
				added(t, fmt.Sprint("line", i%4), id.Draw(r, "id"), fmt.Sprint(i)), deleted(t, id.Draw(r, "id")),
			}).Draw(r, "event"))
		}
		all := decodeAll(notes.Decode, numbered(0, history))
		opened := func(name string) *file {
			f, err := openFile(t.Context(), filepath.Join(dir, name), notes)
			if err != nil {
				r.Fatal(err)
			}
			return f
		}
		m := &Model{dir: dir, current: opened("0.db"), moved: make(chan struct{}), feeds: map[*Feed]bool{}}
		defer func() { m.current.close() }()
		f, fed, read := m.Feed(), mirror{}, mirror{}
		for files := 1; int(m.Seq()) < len(all); {
			switch rapid.SampledFrom([]string{"continue", "continue", "continue", "continue", "check", "check",
				"exchange"}).Draw(r, "then") {
			case "continue":
				from := int(m.Seq())
				if err := m.take(all[from:min(len(all), from+rapid.SampledFrom([]int{1, 3, 20}).Draw(r, "batch"))],
					true); err != nil {
					r.Fatal(err)
				}
			case "check":
				check(t, r, m, f, fed, read)
			case "exchange": // for a rebuilt file that has applied any part of the log
				rebuilt := opened(fmt.Sprintf("%d.db", files))
				files++
				if err := rebuilt.commit(all[:rapid.IntRange(0, len(all)).Draw(r, "applied")]); err != nil {
					r.Fatal(err)
				}
				m.current.close()
				if err := m.exchange(func() (*file, error) { return rebuilt, nil }); err != nil {
					r.Fatal(err)
				}
			}
		}
		check(t, r, m, f, fed, read)
	})
}
