package projections

import (
	"context"
	"fmt"
)

// Change says that clients are shown a row differently from before. The usage of a chat changes with its messages.
type Change struct {
	Table, ID string
	Created   bool // it was not there before
	Removed   bool // it is there no more; with Created it came and went meanwhile
}

// changedRow is a row as a commit left it.
type changedRow struct {
	table string
	Record
}

// Feed tells one follower what changed. What it has not fetched yet is kept by row, so a slow follower costs no more memory
// than there are rows, and the worker never waits for it.
type Feed struct {
	m       *Model
	seq     uint64   // told up to here; like what follows guarded by m.mu
	changes []Change // since then, in the order of the rows' first change
	place   map[rowKey]int
}

type rowKey struct{ table, id string }

// Feed registers a follower. It hears of every event applied from now on, once: when the file is exchanged for one that
// was made again, what was told before is not told again, and while that one has not got there, nothing is.
func (m *Model) Feed() *Feed {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &Feed{m: m, seq: m.told, place: map[rowKey]int{}}
	m.feeds[f] = true
	return f
}

// Next waits until events were applied since the last Next, and gives the rows they changed, each once, and the sequence of
// the last of them: events that changed no row move it alone. Queries show at least what it tells of. One goroutine calls
// it, and none after Close.
func (f *Feed) Next(ctx context.Context) ([]Change, uint64, error) {
	for {
		f.m.mu.Lock()
		if f.seq < f.m.told {
			changes := f.changes
			f.seq, f.changes, f.place = f.m.told, nil, map[rowKey]int{}
			f.m.mu.Unlock()
			return changes, f.seq, nil
		}
		moved := f.m.moved
		f.m.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("wait for changes of the read models: %w", ctx.Err())
		}
	}
}

// Close ends it.
func (f *Feed) Close() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	delete(f.m.feeds, f)
}

// tell notes for every follower what the events after m.told, up to seq, changed. The caller holds m.mu.
func (m *Model) tell(seq uint64, rows []changedRow) {
	if seq <= m.told { // a file that was made again is not there yet
		return
	}
	for _, r := range rows {
		if uint64(r.Last) > m.told {
			for f := range m.feeds {
				f.add(Change{r.table, r.ID, uint64(r.First) > m.told, r.Removed})
			}
		}
	}
	m.told = seq
}

func (f *Feed) add(c Change) {
	key := rowKey{c.Table, c.ID}
	i, found := f.place[key]
	if !found {
		f.place[key] = len(f.changes)
		f.changes = append(f.changes, c)
		return
	}
	c.Created = c.Created || f.changes[i].Created
	f.changes[i] = c
}

// changedSince gives the rows that clients see and that an event after seq changed.
func (f *file) changedSince(seq uint64) ([]changedRow, error) {
	var all []changedRow
	for _, t := range f.tx.tables {
		rows, err := t.changedSince(seq)
		if err != nil {
			return nil, fmt.Errorf("read what changed after #%d: %w", seq, err)
		}
		all = append(all, rows...)
	}
	return all, nil
}
