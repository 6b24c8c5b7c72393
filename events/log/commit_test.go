package log_test

import (
	"errors"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
)

func TestCommitIsAtomic(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	write := func(chat string, size int, last uint64) log.Write {
		return log.Write{
			Event:  openCode(t, chat, "evt_"+events.NewID(), -1, size),
			Expect: log.Expect{Filter: events.ChatFilter(chat), Last: last},
		}
	}
	seq, err := l.Commit(t.Context(), []log.Write{write("c1", 10, 0)})
	is.NoErr(err)
	is.Equal(seq, uint64(1))
	free := write("c1", 10, 0)
	free.Expect = log.Expect{}
	seq, err = l.Commit(t.Context(), []log.Write{free})
	is.NoErr(err)
	is.Equal(seq, uint64(2))
	seq, err = l.Commit(t.Context(), []log.Write{write("c1", 10, 2), write("c2", 2*log.MaxInline, 0)})
	is.NoErr(err)
	is.Equal(seq, uint64(4))
	for _, late := range [][]log.Write{
		{write("c1", 10, 2)},
		{write("c1", 10, 2), write("c2", 10, 4)},
		{write("c1", 10, 3), write("c2", 10, 0), write("c3", 10, 0)},
	} {
		_, err = l.Commit(t.Context(), late)
		is.True(errors.Is(err, log.ErrConflict))
	}
	got := read(t, l, 0)
	is.Equal(len(got), 4)
	is.True(len(got[3].Data) > 2*log.MaxInline)
}
