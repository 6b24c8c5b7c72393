package handlers_test

import (
	"context"
	"errors"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/ops/expect"
)

// number is a command of the tests.
type number struct {
	N int `json:"n"`
}

func TestCommandsOfOtherNodes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := eventstest.Server(t, expect.MemoryDir(t))
	served, nc := eventstest.Conn(t, s), eventstest.Conn(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	commands := handlers.Commands{
		"double": handlers.QueryOf(func(_ context.Context, c number) (int, error) { return 2 * c.N, nil }),
		"refuse": handlers.QueryOf(func(_ context.Context, c number) (int, error) {
			return 0, handlers.Refuse(handlers.Conflict, "%d is taken", c.N)
		}),
		"full":   handlers.QueryOf(func(context.Context, number) (int, error) { return 0, log.Unavailable("full") }),
		"broken": handlers.QueryOf(func(context.Context, number) (int, error) { return 0, errors.New("connection closed") }),
	}
	go func() { done <- commands.ServeEngine(ctx, served, "local", handlerstest.Quiet()) }()
	expect.Eventually(t, "commands are served", func() bool { return served.NumSubscriptions() == len(commands) })
	is.NoErr(served.Flush())
	a, err := handlers.SendToEngine(t.Context(), nc, "local", "double", number{21})
	is.NoErr(err)
	is.Equal(string(a.Result), "42")
	for _, c := range []struct {
		name    string
		command any
		code    handlers.Code
		want    string
	}{
		{"refuse", number{7}, handlers.Conflict, "7 is taken"},
		{"full", number{}, handlers.Unavailable, "full"},
		{"double", map[string]any{"m": 1}, handlers.Invalid, `unknown field "m"`},
		{"double", []int{1}, handlers.Invalid, "the command cannot be decoded"},
	} {
		_, err := handlers.SendToEngine(t.Context(), nc, "local", c.name, c.command)
		is.Equal(handlerstest.Refusal(t, err), c.code)
		expect.Contains(t, err.Error(), c.want)
	}
	_, err = handlers.SendToEngine(t.Context(), nc, "local", "broken", number{})
	is.True(err != nil && !errors.As(err, new(handlers.Refused))) // what is ours to repair is no refusal
	_, err = handlers.SendToEngine(t.Context(), nc, "other", "double", number{})
	is.True(errors.Is(err, nats.ErrNoResponders))
	cancel()
	is.True(errors.Is(<-done, context.Canceled))
}
