package store

import (
	"context"
	"fmt"
)

// Change reports that clients see a row differently from before.
type Change struct {
	Table, ID string
	Created   bool // the row is new
	Removed   bool // the row is gone; with Created, it came and went in between
}

type changedRow struct {
	table string
	Record
}

// Feed collects the changes for one subscriber. It merges the changes of a row until Next fetches them. A slow
// subscriber therefore needs no more memory than there are rows, and Run never waits for it.
type Feed struct {
	m       *Model
	seq     uint64   // Next has returned the changes up to here; m.mu guards this field and those below
	changes []Change // since seq, in the order in which the rows first changed
	place   map[rowKey]int
}

type rowKey struct{ table, id string }

// Feed registers a subscriber. It receives the changes of every later event once. A rebuilt file does not repeat
// changes that were published before; while such a file is behind, the feed is silent.
func (m *Model) Feed() *Feed {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &Feed{m: m, seq: m.published, place: map[rowKey]int{}}
	m.feeds[f] = true
	return f
}

// Next waits until events were applied since the last call. It returns each changed row once, and the sequence of the
// last event. The list is empty if the events changed no row. Queries see at least these changes. One goroutine calls
// Next, and not after Close.
func (f *Feed) Next(ctx context.Context) (changes []Change, seq uint64, err error) {
	err = f.m.await(ctx, func() bool {
		if f.seq == f.m.published {
			return false
		}
		changes, seq = f.changes, f.m.published
		f.seq, f.changes, f.place = seq, nil, map[rowKey]int{}
		return true
	})
	if err != nil {
		return nil, 0, fmt.Errorf("wait for changes of the read models: %w", err)
	}
	return changes, seq, nil
}

func (f *Feed) Close() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	delete(f.m.feeds, f)
}

// publish adds the changes of the events after m.published, up to seq, to all feeds. The caller holds m.mu.
func (m *Model) publish(seq uint64, rows []changedRow) {
	if seq <= m.published { // a rebuilt file is still behind
		return
	}
	for _, r := range rows {
		if uint64(r.Last) > m.published {
			for f := range m.feeds {
				f.add(Change{r.table, r.ID, uint64(r.First) > m.published, r.Removed})
			}
		}
	}
	m.published = seq
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

// changedSince returns the rows of all shown tables that an event after seq changed.
func (f *file) changedSince(seq uint64) ([]changedRow, error) {
	var all []changedRow
	for _, t := range f.tx.tables {
		rows, err := t.changedSince(seq)
		if err != nil {
			return nil, fmt.Errorf("read changes after #%d: %w", seq, err)
		}
		all = append(all, rows...)
	}
	return all, nil
}
