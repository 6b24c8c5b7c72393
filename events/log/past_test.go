package log_test

import (
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
)

func TestAtReturnsTheSequenceBeforeATime(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	at := func(when time.Time) uint64 {
		seq, err := l.At(t.Context(), when)
		is.NoErr(err)
		return seq
	}
	stored := func(seq uint64) time.Time {
		when, err := l.Stored(t.Context(), seq)
		is.NoErr(err)
		return when
	}
	is.Equal(at(time.Now()), uint64(0)) // of an empty log
	is.True(stored(0).IsZero())
	for range 3 {
		e, err := events.New("c1", events.ActorSystem, events.ChatCreated{Title: "t"})
		is.NoErr(err)
		_, err = l.Append(t.Context(), e)
		is.NoErr(err)
	}
	is.Equal(at(time.Now().Add(time.Hour)), uint64(3))
	is.Equal(at(time.Now().Add(-time.Hour)), uint64(0))
	is.Equal(at(stored(2)), uint64(1))
	is.Equal(stored(0), stored(1))
	is.True(stored(4).IsZero())
}
