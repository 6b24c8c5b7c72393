package store

import (
	"errors"
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
)

// An event that cannot be applied costs no more than any other one: a long log can have many.
func TestAnEventThatFailsIsUndoneAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	applied := 0
	failing := notes
	failing.Open = func(tx *Tx) Apply {
		apply := notes.Open(tx)
		return func(e events.Event, body any) error {
			applied++
			if err := apply(e, body); err != nil || e.Seq%7 > 0 {
				return err
			}
			return errors.New("it fails when it has changed its row")
		}
	}
	m, err := Open(t.Context(), expect.MemoryDir(t), eventstest.Log(t), failing)
	is.NoErr(err)
	defer m.Close()
	var all []events.Event
	for i := range 70 { // each note has every fifth event
		all = append(all, saved(t, fmt.Sprint("note", i%5), fmt.Sprint("text ", i+1)))
	}
	all = append(all, saved(t, "new", "text 71"), deleted(t, "new"), saved(t, "b", "73"), saved(t, "b", "74"),
		saved(t, "b", "75"), saved(t, "b", "76"), saved(t, "failed", "77"))
	apply(t, m, all...)
	is.Equal(applied, len(all))
	letters, err := m.DeadLetters(t.Context(), 0)
	is.NoErr(err)
	is.Equal(letters.Count, 11)
	for id, want := range map[string]string{
		"note0": "text 66", "note1": "text 67", "note4": "text 65", "new": "", "b": "76", "failed": "",
	} {
		is.Equal(text(t, m, id), want)
	}
}
