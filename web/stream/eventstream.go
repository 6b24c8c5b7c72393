package stream

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"pocketcoder/web/api"
)

// EventWriter writes an event stream (https://html.spec.whatwg.org/multipage/server-sent-events.html) to one client.
// It is safe for concurrent use. Its errors are api.ErrGone.
type EventWriter struct {
	mu  sync.Mutex
	out *api.DeadlineWriter
}

// Send writes one event and flushes it. An event with an empty id does not change where the client resumes. No
// argument may have a line break.
func (e *EventWriter) Send(id, name string, data []byte) error {
	frame := make([]byte, 0, len(id)+len(name)+len(data)+len("id: \nevent: \ndata: \n\n"))
	if id != "" {
		frame = append(append(append(frame, "id: "...), id...), '\n')
	}
	frame = append(append(append(frame, "event: "...), name...), '\n')
	frame = append(append(append(frame, "data: "...), data...), "\n\n"...)
	return e.write(frame)
}

func (e *EventWriter) write(b []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.out.Write(b); err != nil {
		return err
	}
	return e.out.Flush()
}

// ServeEvents answers with an event stream. Each part writes to it in its own goroutine. The stream ends with the
// first part that ends, with the client, with the server, or when ended is closed. Errors are logged: the answer has
// begun, and the client reconnects.
func ServeEvents(
	server *api.Server, w http.ResponseWriter, r *http.Request, ended <-chan struct{},
	parts ...func(context.Context, *EventWriter) error,
) error {
	out := &EventWriter{out: api.NewDeadlineWriter(w)}
	w.Header().Set("Content-Type", api.EventStream)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it back
	w.WriteHeader(http.StatusOK)
	if err := out.out.Flush(); err != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	done := make(chan error, len(parts))
	for _, part := range parts {
		go func() { done <- part(ctx, out) }()
	}
	err := out.untilDone(ctx, done, ended)
	if ctx.Err() == nil && err != nil && !errors.Is(err, api.ErrGone) {
		server.Logger.Error("stream", "path", r.URL.Path, "err", err)
	}
	cancel()
	for range parts {
		<-done // nothing may write after the answer has ended
	}
	return nil
}

// untilDone waits for the end of the stream and sends pings. It puts a value that it receives from done back.
func (e *EventWriter) untilDone(ctx context.Context, done chan error, ended <-chan struct{}) error {
	ticker := time.NewTicker(api.PingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			return nil
		case err := <-done:
			done <- err
			return err
		case <-ticker.C:
			if err := e.write([]byte(": ping\n\n")); err != nil {
				return err
			}
		}
	}
}
