package log

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Unavailable is the error of a command that cannot be stored at present. It is a sentence for the person who sent it.
type Unavailable string

func (u Unavailable) Error() string { return string(u) }

// errNoRoom is the error of an append beyond a limit of the server. The log stores events again as soon as the server does.
const errNoRoom = Unavailable("The NATS server has reached its storage limit. An administrator must raise max_file_store of the server, or free space and restart it.")

// Accepting returns an Unavailable while commands are refused. Append and AppendAll are not refused: they store what has
// happened already, and the last free space is for them.
func (l *Log) Accepting(ctx context.Context) error {
	if last, _ := ctx.Value(lastSpaceKey{}).(bool); last || l.refuse == nil {
		return nil
	}
	return l.refuse()
}

type lastSpaceKey struct{}

// UseLastSpace returns a context with which Commit is never refused, for a command that stops something.
func UseLastSpace(ctx context.Context) context.Context {
	return context.WithValue(ctx, lastSpaceKey{}, true)
}

// failure is an uninterrupted series of appends that the server did not store.
type failure struct {
	since time.Time // of the first error
	err   error     // the last one
}

// Failing returns the error of the last append and since when appends fail; nil if the last one was stored.
func (l *Log) Failing() (since time.Time, err error) {
	if f := l.failed.Load(); f != nil {
		return f.since, f.err
	}
	return time.Time{}, nil
}

// observe notes the result of an append.
func (l *Log) observe(err error) {
	if !IsUnavailable(err) {
		if err == nil && l.failed.Load() != nil {
			l.failed.Store(nil)
		}
		return
	}
	f := &failure{since: time.Now(), err: err}
	if earlier := l.failed.Load(); earlier != nil {
		f.since = earlier.since
	}
	l.failed.Store(f)
}

// IsUnavailable reports whether an error means that the server does not answer or does not store at present. A refusal of one
// event is no such error.
func IsUnavailable(err error) bool {
	if api := (*jetstream.APIError)(nil); errors.As(err, &api) {
		return api.Code >= http.StatusInternalServerError || api.ErrorCode == codeBatchIncomplete
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrNoStreamResponse)
}
