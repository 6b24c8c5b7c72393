package api_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/web/api"
)

func TestUnavailableLogAnswers503(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, err := range []error{
		context.DeadlineExceeded, nats.ErrNoResponders, nats.ErrTimeout, jetstream.ErrNoStreamResponse,
		log.Unavailable("The log does not answer."),
		handlers.Refuse(handlers.Unavailable, "OpenCode does not answer; try again."),
		&jetstream.APIError{Code: 503, ErrorCode: 10008},
	} {
		p := api.ProblemOf(fmt.Errorf("append evt.chat.c1.created: %w", err))
		is.Equal(p.Status, http.StatusServiceUnavailable)
		is.True(p.Retry > 0)
	}
}
