package api

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"
)

func TestEachAccountHasItsQuerySlots(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var s querySlots
	acquire := func(key string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := s.acquire(ctx, key)
		return err
	}
	release, err := s.acquire(t.Context(), "eve")
	is.NoErr(err)
	is.NoErr(acquire("eve"))
	is.True(errors.Is(acquire("eve"), context.DeadlineExceeded))
	for i := range maxSlowQueries - maxSlowQueriesPerAccount {
		is.NoErr(acquire(fmt.Sprint("ann", i)))
	}
	is.True(errors.Is(acquire("bob"), context.DeadlineExceeded)) // the limit of all accounts
	is.True(errors.Is(acquire(""), context.DeadlineExceeded))
	release()
	is.NoErr(acquire("bob"))
	is.Equal(s.by["eve"].users, 1)
	is.True(s.by[""] == nil) // a cancelled query leaves nothing behind
}
