package api

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"
)

func TestEachAccountHasItsShare(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var s shares
	taken := func(holder string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := s.take(ctx, holder)
		return err
	}
	give, err := s.take(t.Context(), "eve")
	is.NoErr(err)
	is.NoErr(taken("eve"))
	is.True(errors.Is(taken("eve"), context.DeadlineExceeded))
	for i := range maxAsking - maxShare {
		is.NoErr(taken(fmt.Sprint("ann", i)))
	}
	is.True(errors.Is(taken("bob"), context.DeadlineExceeded)) // all together
	is.True(errors.Is(taken(""), context.DeadlineExceeded))
	give()
	is.NoErr(taken("bob"))
	is.Equal(s.by["eve"].users, 1)
	is.True(s.by[""] == nil) // whoever gave up is forgotten
}
