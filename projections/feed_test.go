package projections

import (
	"context"
	"errors"
	"fmt"
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
	"pocketcoder/expect"
)

// shownTables is every table that clients see.
var shownTables = []string{"chats", "messages", "permissions", "questions", "executions", "artifacts", "commands", "subagents", "config", "users"}

// next gives what a follower is told, as sorted lines, and up to where.
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

func TestFollowerIsToldOfEachRowOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &story{t: t}
	feed(t, m, s.created())
	f := m.Feed()
	defer f.Close()
	feed(t, m, s.submitted("m1"), s.submitted("m2"))
	feed(t, m, s.own(events.MessageFailed{Message: "m1", Domain: "infrastructure"}))
	lines, seq := next(t, f)
	is.Equal(lines, []string{"chats " + chatID + " created=false removed=false", "messages m1 created=true removed=false", "messages m2 created=true removed=false"})
	is.Equal(seq, uint64(4))

	feed(t, m, s.own(events.AbortRequested{})) // changes no row
	lines, seq = next(t, f)
	is.Equal(len(lines), 0)
	is.Equal(seq, uint64(5))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := f.Next(ctx)
	is.True(errors.Is(err, context.Canceled)) // nothing is new
}

func TestPartsAreChangesOfTheirMessage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &story{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, s.assistant(ses, "msg_a", msg1, ""))
	f := m.Feed()
	defer f.Close()
	part := textPart(s, "msg_a", "prt_a", "words")
	answer := "messages " + RecordID("msg_a") + " created=false removed="
	feed(t, m, part)
	lines, _ := next(t, f)
	is.True(slices.Contains(lines, answer+"false"))
	feed(t, m, part) // seen again
	lines, _ = next(t, f)
	is.Equal(len(lines), 0)
	removed := s.opencode(true, "message.removed", fmt.Sprintf(`{"sessionID":%q,"messageID":"msg_a"}`, ses))
	feed(t, m, removed)
	lines, _ = next(t, f)
	is.True(slices.Contains(lines, answer+"true"))
	feed(t, m, removed, textPart(s, "msg_a", "prt_b", "late")) // of what is gone nobody hears
	lines, _ = next(t, f)
	expect.Lacks(t, strings.Join(lines, "\n"), RecordID("msg_a"))
}

func TestFollowerThatDoesNotAskCostsNoMoreThanTheRows(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &story{t: t}
	f, closed := m.Feed(), m.Feed()
	feed(t, m, s.created())
	closed.Close()
	for i := range 200 {
		feed(t, m, s.own(events.ChatUpdated{Title: new(fmt.Sprint(i))}))
	}
	is.Equal(len(f.changes), 1)
	is.Equal(len(closed.changes), 1) // since it was closed it takes nothing
	is.Equal(len(m.feeds), 1)
	lines, seq := next(t, f)
	is.Equal(lines, []string{"chats " + chatID + " created=true removed=false"})
	is.Equal(seq, uint64(201))
}

func TestFollowerHearsNothingOfWhatWasSetAside(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &story{t: t}
	feed(t, m, s.created(), s.submitted("m1"))
	f := m.Feed()
	defer f.Close()
	is.NoErr(m.current.tx.exec("CREATE TEMP TRIGGER refuses BEFORE INSERT ON chats WHEN NEW.outbox=2 BEGIN SELECT RAISE(ABORT, 'no'); END"))
	feed(t, m, s.submitted("m2"), s.own(events.ChatUpdated{Title: new("Other")})) // the row of m2 is written before its chat's
	lines, seq := next(t, f)
	is.Equal(lines, []string{"chats " + chatID + " created=false removed=false"})
	is.Equal(seq, uint64(4))
	is.Equal(len(shown(t, m)), 1)
}

func TestFollowerIsWokenByTheWorker(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m, s := running(t, t.TempDir(), log), &story{t: t}
	f := m.Feed()
	defer f.Close()
	last, err := log.Append(t.Context(), s.created())
	is.NoErr(err)
	lines, seq := next(t, f)
	is.Equal(lines, []string{"chats " + chatID + " created=true removed=false"})
	is.Equal(seq, last)
	is.NoErr(m.View(t.Context(), func(db dbx.Builder, at uint64) error {
		is.True(at >= seq) // what it was told of is there
		is.Equal(count(t, db, "chats"), 1)
		return nil
	}))
}

func TestRebuildTellsFollowersNothingTwice(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m, s := running(t, t.TempDir(), log), &story{t: t}
	last, err := log.AppendAll(t.Context(), conversation(t, "9i-perm-task"))
	is.NoErr(err)
	m.waited(t, last)
	f := m.Feed()
	defer f.Close()
	_, err = m.Rebuild(t.Context(), func(done, total uint64) {})
	is.NoErr(err)
	last, err = log.Append(t.Context(), s.submitted("m9"))
	is.NoErr(err)
	lines, seq := next(t, f)
	is.Equal(lines, []string{"chats " + chatID + " created=false removed=false", "messages m9 created=true removed=false"})
	is.Equal(seq, last)
}

func TestFollowerHearsOfWhatARebuildBroughtUpToDate(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m, err := Open(t.Context(), t.TempDir(), log) // its worker is behind
	is.NoErr(err)
	defer m.Close()
	f := m.Feed()
	defer f.Close()
	last, err := log.AppendAll(t.Context(), conversation(t, "01-simple-text"))
	is.NoErr(err)
	m.write.Lock()
	err = m.catchUp(t.Context(), m.current, last)
	m.write.Unlock()
	is.NoErr(err)
	lines, seq := next(t, f)
	is.Equal(len(lines), 3) // a chat and two messages
	is.Equal(seq, last)
}

// mirror is what a follower knows of the rows: when each was last updated.
type mirror map[rowKey]string

// rows gives that of all rows shown.
func (m mirror) rows(r *rapid.T, db dbx.Builder) mirror {
	all := mirror{}
	for _, table := range shownTables {
		var rows []Record
		if err := db.NewQuery("SELECT id, created, updated, first_seq, last_seq, removed FROM " + table + " WHERE NOT removed").All(&rows); err != nil {
			r.Fatal(err)
		}
		for _, row := range rows {
			all[rowKey{table, row.ID}] = row.Updated
		}
	}
	return all
}

// take applies what a follower was told; every change must be one.
func (m mirror) take(r *rapid.T, now mirror, changes []Change) {
	for _, c := range changes {
		key := rowKey{c.Table, c.ID}
		updated, shown := now[key]
		known, had := m[key]
		switch {
		case c.Removed == shown:
			r.Fatalf("%+v, shown %t", c, shown)
		case c.Removed && !had && !c.Created:
			r.Fatalf("%+v was never there", c)
		case !c.Removed && had == c.Created && c.Table != "config": // a config record may have gone and come back
			r.Fatalf("%+v, known %t", c, had)
		case !c.Removed && updated == known:
			r.Fatalf("%+v is as it was", c)
		}
		if delete(m, key); shown {
			m[key] = updated
		}
	}
}

func (m mirror) mustBe(r *rapid.T, now mirror) {
	if len(m) != len(now) {
		r.Fatalf("follower knows %d rows of %d", len(m), len(now))
	}
	for key, updated := range now {
		if m[key] != updated {
			r.Fatalf("%v: follower has %q, read models %q", key, m[key], updated)
		}
	}
}

// since gives what the sequences of the rows say about what came after seq.
func since(r *rapid.T, db dbx.Builder, seq uint64) (changes []Change) {
	for _, table := range shownTables {
		var rows []Record
		query := "SELECT id, first_seq, last_seq, removed FROM " + table + " WHERE last_seq > {:seq}"
		if err := db.NewQuery(query).Bind(dbx.Params{"seq": seq}).All(&rows); err != nil {
			r.Fatal(err)
		}
		for _, row := range rows {
			changes = append(changes, Change{table, row.ID, uint64(row.First) > seq, row.Removed})
		}
	}
	return changes
}

// askFollower takes what the follower is told and, as another that was away would, what the rows say: both must lead to what is
// shown. While a file that was made again is not there yet, nothing is told.
func askFollower(t testing.TB, r *rapid.T, m *Model, f *Feed, told, read mirror) {
	before := f.seq
	if before >= m.told || m.Seq() < m.told {
		return
	}
	changes, seq, err := f.Next(t.Context())
	if err != nil {
		r.Fatal(err)
	}
	err = m.View(t.Context(), func(db dbx.Builder, at uint64) error {
		if at != seq {
			r.Fatalf("told up to %d, shown %d", seq, at)
		}
		now := told.rows(r, db)
		told.take(r, now, changes)
		told.mustBe(r, now)
		read.take(r, now, since(r, db, before))
		read.mustBe(r, now)
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
}

func TestFollowersKnowEveryRowWhateverTheBatchesAndTheFile(t *testing.T) {
	t.Parallel()
	names := recordings(t)
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			r.Fatal(err)
		}
		all := decodeAll(history(t, r, names))
		m := &Model{current: opened(r, filepath.Join(dir, "0.db")), moved: make(chan struct{}), feeds: map[*Feed]bool{}}
		defer func() { m.current.close() }()
		f, told, read := m.Feed(), mirror{}, mirror{}
		for files := 1; int(m.Seq()) < len(all); {
			switch rapid.SampledFrom([]string{"go on", "go on", "go on", "go on", "go on", "go on", "go on", "ask", "ask", "ask", "exchange"}).Draw(r, "then") {
			case "go on":
				from := int(m.Seq())
				if err := m.take(all[from:min(len(all), from+rapid.SampledFrom([]int{1, 9, 60}).Draw(r, "batch"))], true); err != nil {
					r.Fatal(err)
				}
			case "ask":
				askFollower(t, r, m, f, told, read)
			case "exchange": // for a file made again, as far as it may be
				again := opened(r, filepath.Join(dir, fmt.Sprintf("%d.db", files)))
				files++
				if err := again.commit(all[:rapid.IntRange(0, len(all)).Draw(r, "made")]); err != nil {
					r.Fatal(err)
				}
				m.current.close()
				if err := m.exchange(func() (*file, error) { return again, nil }); err != nil {
					r.Fatal(err)
				}
			}
		}
		askFollower(t, r, m, f, told, read)
	})
}
