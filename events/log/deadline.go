package log

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// ErrLate means that nothing was stored, because the deadline of BeginBefore had passed.
var ErrLate = errors.New("the deadline of the command has passed, so nothing was stored")

// commandDeadline is the deadline of a command that may append more than once.
type commandDeadline struct {
	at     time.Time
	stored atomic.Bool // an append was stored, or may be
}

type deadlineKey struct{}

// BeginBefore returns a context with which appends return ErrLate after the deadline. Once one of them is stored, the
// further ones are stored too, whenever they come: the command is not left half done.
func BeginBefore(ctx context.Context, deadline time.Time) context.Context {
	return context.WithValue(ctx, deadlineKey{}, &commandDeadline{at: deadline})
}

// checkDeadline is called directly before an append is sent.
func checkDeadline(ctx context.Context) error {
	d, _ := ctx.Value(deadlineKey{}).(*commandDeadline)
	if d != nil && !d.stored.Load() && time.Now().After(d.at) {
		return ErrLate
	}
	return nil
}

// markStored is called when an append was stored, or may be.
func markStored(ctx context.Context) {
	if d, _ := ctx.Value(deadlineKey{}).(*commandDeadline); d != nil {
		d.stored.Store(true)
	}
}
