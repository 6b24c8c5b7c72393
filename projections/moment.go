package projections

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/projections/store"
)

// ErrNoChat means that a chat had no event yet.
var ErrNoChat = errors.New("there was no such chat")

// MomentView reads a moment: read models that hold only one chat. last is the newest event that they hold.
type MomentView func(db dbx.Builder, last events.Event) error

// MomentAt calls fn with a chat as it was after the event at seq. It computes the read models in memory from the log
// alone. It returns ErrNoChat if the chat had no event by then, and an error of fn unchanged.
func MomentAt(ctx context.Context, l *log.Log, chat string, seq uint64, fn MomentView) error {
	m := &momentModel{log: l, chat: chat}
	defer m.close()
	return m.show(ctx, seq, 0, fn)
}

// momentModel holds the read models of one chat at one of its events.
type momentModel struct {
	log     *log.Log
	chat    string
	memory  *store.Memory  // nil before the first moment
	last    events.Event   // the newest event that memory and pending hold
	number  int            // of that event among those of the chat, from 1; 0 for none
	pending []events.Event // that memory does not hold yet

	limit int // of saved
	every int // events between two saves; 0 for no saves
	saves []momentSave
	saved int // bytes in saves
}

// momentSave is a copy of the read models. Later moments are computed from it.
type momentSave struct {
	last   events.Event
	number int
	data   []byte
}

// show calls fn with the chat as it was after the event at seq, and again after each of the chat's next events, more of
// them at most.
func (m *momentModel) show(ctx context.Context, seq uint64, more int, fn MomentView) error {
	var failed error // of fn
	view := func() error {
		if m.number == 0 {
			return ErrNoChat
		}
		if err := m.apply(); err != nil {
			return err
		}
		return m.memory.View(ctx, func(db dbx.Builder) error { failed = fn(db, m.last); return failed })
	}
	err := m.start(ctx, seq)
	if err == nil {
		_, err = m.log.Fold(ctx, events.ChatFilter(m.chat), m.last.Seq, func(e events.Event) error {
			if e.Seq > seq {
				if more == 0 || m.number == 0 {
					return events.ErrStop
				}
				if err := view(); err != nil {
					return err
				}
				seq, more = e.Seq, more-1
			}
			return m.take(e)
		})
	}
	if err == nil || errors.Is(err, events.ErrStop) { // the last view may take long, so the log is not read meanwhile
		err = view()
	}
	switch {
	case failed != nil:
		return failed
	case err == nil:
		return nil
	}
	return fmt.Errorf("compute chat %s as of #%d: %w", m.chat, seq, err)
}

// start goes to the newest known moment up to seq: where the model is, a save, or the beginning.
func (m *momentModel) start(ctx context.Context, seq uint64) error {
	var from momentSave
	if later := sort.Search(len(m.saves), func(i int) bool { return m.saves[i].last.Seq > seq }); later > 0 {
		from = m.saves[later-1]
	}
	if m.memory != nil && m.last.Seq <= seq && m.number >= from.number {
		return nil
	}
	m.close()
	memory, err := openMemory(ctx, from.data)
	if err == nil {
		m.memory, m.last, m.number = memory, from.last, from.number
	}
	return err
}

// take adds the next event.
func (m *momentModel) take(e events.Event) error {
	m.last, m.pending = e, append(m.pending, e)
	m.number++
	if m.every > 0 && m.number%m.every == 0 && (len(m.saves) == 0 || m.saves[len(m.saves)-1].number < m.number) {
		return m.save()
	}
	if len(m.pending) < log.MaxBatch {
		return nil
	}
	return m.apply()
}

func (m *momentModel) apply() error {
	err := m.memory.Apply(m.pending)
	m.pending = nil
	return err
}

// maxMomentSaves is the size of the saves of a chat, in bytes.
const maxMomentSaves = 32 << 20

// save saves the model. If the saves become too large, it removes every second one.
func (m *momentModel) save() error {
	if err := m.apply(); err != nil {
		return err
	}
	data, err := m.memory.Save()
	if err != nil {
		return err
	}
	m.saves = append(m.saves, momentSave{m.last, m.number, data})
	m.saved += len(data)
	for m.saved > m.limit {
		m.every *= 2
		m.saves = slices.DeleteFunc(m.saves, func(s momentSave) bool {
			if s.number%m.every == 0 {
				return false
			}
			m.saved -= len(s.data)
			return true
		})
	}
	return nil
}

// size returns the size of the read models in bytes.
func (m *momentModel) size(ctx context.Context) int {
	n, err := m.memory.Size(ctx)
	if err != nil {
		return math.MaxInt
	}
	return n
}

// close frees the memory of the model. The saves stay.
func (m *momentModel) close() {
	if m.memory != nil {
		_ = m.memory.Close() // nothing in it is needed
	}
	m.memory, m.last, m.number, m.pending = nil, events.Event{}, 0, nil
}
