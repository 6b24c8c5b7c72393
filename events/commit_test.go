package events_test

import (
	"errors"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
)

func TestCommitIsAllOrNothing(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	write := func(chat string, size int, last uint64) events.Write {
		return events.Write{
			Event:  openCode(t, chat, "evt_"+events.NewID(), -1, size),
			Expect: events.Expect{Filter: events.ChatFilter(chat), Last: last},
		}
	}
	seq, err := l.Commit(t.Context(), []events.Write{write("c1", 10, 0)})
	is.NoErr(err)
	is.Equal(seq, uint64(1))
	free := write("c1", 10, 0)
	free.Expect = events.Expect{}
	seq, err = l.Commit(t.Context(), []events.Write{free})
	is.NoErr(err)
	is.Equal(seq, uint64(2))
	seq, err = l.Commit(t.Context(), []events.Write{write("c1", 10, 2), write("c2", 2*events.MaxInline, 0)})
	is.NoErr(err)
	is.Equal(seq, uint64(4))
	for _, late := range [][]events.Write{
		{write("c1", 10, 2)},
		{write("c1", 10, 2), write("c2", 10, 4)},
		{write("c1", 10, 3), write("c2", 10, 0), write("c3", 10, 0)},
	} {
		_, err = l.Commit(t.Context(), late)
		is.True(errors.Is(err, events.ErrConflict))
	}
	got := read(t, l, 0)
	is.Equal(len(got), 4)
	is.True(len(got[3].Data) > 2*events.MaxInline)
}
