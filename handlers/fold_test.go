package handlers_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
)

// interrupted counts events, and ends its context after so many.
type interrupted struct {
	count, after int
	end          context.CancelFunc
}

func (s *interrupted) Apply(events.Event) {
	if s.count++; s.count == s.after {
		s.end()
	}
}

func TestAFoldThatFailedOnTheWayAppliesNothingTwice(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	for range 5 {
		e, err := events.New("chat1", events.ActorPolicy, events.TurnLost{Session: "ses_1"})
		is.NoErr(err)
		_, err = l.Append(t.Context(), e)
		is.NoErr(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &interrupted{after: 2, end: cancel}
	f := handlers.NewFold(s, events.ChatFilter("chat1"))
	nothing := func(*interrupted) error { return nil }
	is.True(f.Read(ctx, l, nothing) != nil)
	is.True(s.count < 5)
	is.NoErr(f.Read(t.Context(), l, nothing))
	is.Equal(s.count, 5)
}

// counted counts events.
type counted struct{ count int }

func (s *counted) Apply(events.Event) { s.count++ }

func TestWritersOfSeveralProcessesAllDecideInTheEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	const writers = 12
	decided := make(chan error, writers)
	begin := make(chan struct{})
	for range writers {
		f := handlers.NewFold(&counted{}, events.ChatFilter("chat1")) // one for each process
		go func() {
			<-begin
			_, err := f.Execute(t.Context(), l, handlers.Command{}, func(*counted) ([]events.Event, uint64, error) {
				e, err := events.New("chat1", events.ActorPolicy, events.TurnLost{Session: "ses_1"})
				return []events.Event{e}, 0, err
			})
			decided <- err
		}()
	}
	close(begin)
	for range writers {
		is.NoErr(<-decided)
	}
}

func TestFoldsKeepTheFoldsThatWereUsedLast(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var folds handlers.Folds[*interrupted]
	began := 0
	get := func(id string) {
		folds.Get(t.Context(), id, func() *handlers.Fold[*interrupted] {
			began++
			return handlers.NewFold(&interrupted{}, events.ChatFilter("chat1"))
		})
	}
	for i := range handlers.MaxFolds {
		get(strconv.Itoa(i))
	}
	get("0")
	get("one more") // replaces "1"
	is.Equal(began, handlers.MaxFolds+1)
	for i := range handlers.MaxFolds {
		if i != 1 {
			get(strconv.Itoa(i))
		}
	}
	is.Equal(began, handlers.MaxFolds+1)
	get("1")
	is.Equal(began, handlers.MaxFolds+2)
}
