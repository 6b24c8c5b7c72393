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
	acquire := func(key string) func() {
		release, err := s.acquire(t.Context(), key)
		is.NoErr(err)
		return release
	}
	waits := func(key string) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := s.acquire(ctx, key)
		return errors.Is(err, context.DeadlineExceeded)
	}
	release := acquire("eve")
	acquire("eve")
	is.True(waits("eve"))
	for i := range maxSlowQueries - maxSlowQueriesPerAccount {
		acquire(fmt.Sprint("ann", i))
	}
	is.True(waits("bob")) // the limit of all accounts
	is.True(waits(""))
	release()
	acquire("bob")
	is.Equal(s.by["eve"].users, 1)
	is.True(s.by[""] == nil) // a cancelled query leaves nothing behind
}
