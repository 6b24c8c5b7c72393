package log_test

import (
	"errors"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
)

func TestCommandsAreRefusedAndFactsAreStored(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var refusal error
	options := log.DefaultOptions
	options.Refuse = func() error { return refusal }
	l, err := log.Open(t.Context(), eventstest.Conn(t, eventstest.Server(t, t.TempDir())), options, secret.NewRedactor())
	is.NoErr(err)
	commit := func(id string) []log.Write { return []log.Write{{Event: sized(t, id, 10)}} }
	_, err = l.Commit(t.Context(), commit("evt_1"))
	is.NoErr(err)

	refusal = log.Unavailable("The disk is full.")
	_, err = l.Commit(t.Context(), commit("evt_2"))
	var u log.Unavailable
	is.True(errors.As(err, &u))
	is.Equal(u.Error(), "The disk is full.")
	_, err = l.Append(t.Context(), sized(t, "evt_3", 10))
	is.NoErr(err)
	_, err = l.Commit(log.UseLastSpace(t.Context()), commit("evt_4"))
	is.NoErr(err)

	refusal = nil
	_, err = l.Commit(t.Context(), commit("evt_5"))
	is.NoErr(err)
	is.Equal(len(read(t, l, 0)), 4)
}
