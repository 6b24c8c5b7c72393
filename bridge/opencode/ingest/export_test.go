package ingest

import (
	"context"

	"pocketcoder/bridge/opencode/client"
)

// ErrGap is errGap.
var ErrGap = errGap

// Unstorable is unstorable.
const Unstorable = unstorable

// Take takes a burst of the stream without a connection.
func (in *Ingest) Take(ctx context.Context, burst []client.Event) error {
	if in.running == nil {
		in.running = map[string]bool{}
	}
	return in.take(ctx, burst, false)
}

// TakeLive takes a burst of the stream, and fills gaps from the history.
func (in *Ingest) TakeLive(ctx context.Context, burst []client.Event) error {
	if in.running == nil {
		in.running = map[string]bool{}
	}
	return in.takeLive(ctx, burst)
}

// SetCurrent sets the client that Current returns.
func (in *Ingest) SetCurrent(c *client.Client) { in.current.Store(c) }

// FetchHistory is fetchHistory.
func (in *Ingest) FetchHistory(ctx context.Context) error { return in.fetchHistory(ctx) }
