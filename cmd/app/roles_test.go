package app

import (
	"context"
	"errors"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A loop begins again while the log does not answer, and ends with any other error.
func TestALoopBeginsAgainWhileTheLogDoesNotAnswer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	errs := []error{&jetstream.APIError{Code: 503}, &nats.APIError{Code: 503}, context.DeadlineExceeded,
		errors.New("a secret is not readable")}
	began := 0
	err := again(func(context.Context) error {
		began++
		return errs[began-1]
	})(t.Context())
	is.Equal(err, errs[3])
	is.Equal(began, 4)
}
