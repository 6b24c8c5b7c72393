package projections_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"
	"pgregory.net/rapid"

	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// shownTables are the tables that clients see.
var shownTables = []string{"chats", "messages", "permissions", "questions", "executions", "artifacts", "commands",
	"subagents", "config", "users", "seen_positions"}

// next returns the changes of a feed as sorted lines, and their sequence.
func next(t testing.TB, f *store.Feed) (lines []string, seq uint64) {
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

func TestPartsAreChangesOfTheirMessage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, s.assistant(ses, "msg_a", msg1, ""))
	f := m.Feed()
	defer f.Close()
	part := textPart(s, "msg_a", "prt_a", "words")
	answer := "messages " + store.RecordID("msg_a") + " created=false removed="
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
	feed(t, m, removed, textPart(s, "msg_a", "prt_b", "late")) // a removed row has no further changes
	lines, _ = next(t, f)
	expect.Lacks(t, strings.Join(lines, "\n"), store.RecordID("msg_a"))
}

// rowKey names a row of a table.
type rowKey struct{ table, id string }

// shownRows returns when each row that clients see was last updated.
func shownRows(r *rapid.T, m *projections.Model) map[rowKey]string {
	all := map[rowKey]string{}
	for _, table := range shownTables {
		rows, err := store.List[store.Record](context.Background(), m.Model, table,
			"SELECT id, created, updated, first_seq, last_seq, removed FROM "+table+" WHERE NOT removed", nil)
		if err != nil {
			r.Fatal(err)
		}
		for _, row := range rows {
			all[rowKey{table, row.ID}] = row.Updated
		}
	}
	return all
}

func TestFeedReportsTheRowsThatChanged(t *testing.T) {
	t.Parallel()
	names, log := recordings(t), longEnough(t)
	expect.Property(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(expect.MemoryDir(t), "")
		if err != nil {
			r.Fatal(err)
		}
		all, m := history(t, r, names), opened(r, dir, log)
		defer m.Close()
		f, known := m.Feed(), map[rowKey]string{}
		defer f.Close()
		for from := 0; from < len(all); from = int(m.Seq()) {
			if err := m.Apply(all[from:min(len(all), from+rapid.SampledFrom([]int{3, 20, 60}).Draw(r, "batch"))]); err != nil {
				r.Fatal(err)
			}
			changes, _, err := f.Next(t.Context())
			if err != nil {
				r.Fatal(err)
			}
			now, reported := shownRows(r, m), map[rowKey]bool{}
			for _, c := range changes {
				reported[rowKey{c.Table, c.ID}] = true
			}
			for key := range reported {
				if _, shown := now[key]; shown && now[key] == known[key] {
					r.Fatalf("%v has not changed", key)
				}
			}
			for _, key := range slices.Concat(slices.Collect(maps.Keys(known)), slices.Collect(maps.Keys(now))) {
				if now[key] != known[key] && !reported[key] {
					r.Fatalf("%v changed from %q to %q, and the feed did not report it", key, known[key], now[key])
				}
			}
			known = now
		}
	})
}
