package log_test

import (
	"errors"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
)

// A command may wait long before it appends. It begins before its deadline or not at all, and is never half done.
func TestNothingBeginsAfterTheDeadline(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	write := func() log.Write {
		e, err := events.New("chat1", "user:1", events.ChatUpdated{})
		is.NoErr(err)
		return log.Write{Event: e}
	}
	late := log.BeginBefore(t.Context(), time.Now().Add(-time.Millisecond))
	for _, all := range [][]log.Write{{write()}, {write(), write()}} {
		_, err := l.Commit(late, all)
		is.True(errors.Is(err, log.ErrLate))
	}
	last, err := l.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, uint64(0))

	deadline := time.Now().Add(time.Second)
	timely := log.BeginBefore(t.Context(), deadline)
	_, err = l.Commit(timely, []log.Write{write()})
	if errors.Is(err, log.ErrLate) {
		return // this machine is slow
	}
	is.NoErr(err)
	<-time.After(time.Until(deadline) + time.Millisecond)
	_, err = l.Commit(timely, []log.Write{write(), write()})
	is.NoErr(err)
}
