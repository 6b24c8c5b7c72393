package app

import (
	"context"
	"errors"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go/jetstream"
)

// A worker begins again while the log does not answer, and ends with any other error.
func TestAWorkerBeginsAgainWhileTheLogDoesNotAnswer(t *testing.T) {
	is := is.New(t)
	noMajority := &jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "JetStream system temporarily unavailable"}
	errs := []error{noMajority, context.DeadlineExceeded, errors.New("a secret is not readable")}
	began := 0
	err := again(func(context.Context) error {
		began++
		return errs[began-1]
	})(t.Context())
	is.Equal(err, errs[2])
	is.Equal(began, 3)
}
