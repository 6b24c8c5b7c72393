package api

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// A client that does not take a piece of an answer within the patience is dropped. Pieces are small, so one behind a slow
// line is not.
const (
	writePatience = 10 * time.Second
	writePiece    = 64 << 10 // bytes

	pingEvery = 20 * time.Second // less than proxies wait, 60 s mostly
)

// errGone says that a client went away, or was too slow.
var errGone = errors.New("the client is gone")

// patientWriter writes an answer to a client that may be slow. Every route is given one.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

func newPatientWriter(w http.ResponseWriter) *patientWriter {
	if p, ok := w.(*patientWriter); ok {
		return p
	}
	return &patientWriter{w, http.NewResponseController(w)}
}

// Unwrap is for http.ResponseController.
func (p *patientWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// await gives the client time for what is written next. What has no deadline is no connection, and keeps nobody waiting.
func (p *patientWriter) await() error {
	err := p.control.SetWriteDeadline(time.Now().Add(writePatience))
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

func (p *patientWriter) WriteHeader(status int) {
	_ = p.await() // of a connection that is gone, the next write says so
	p.ResponseWriter.WriteHeader(status)
}

func (p *patientWriter) Write(b []byte) (n int, err error) {
	for err == nil && n < len(b) {
		piece := b[n:min(n+writePiece, len(b))]
		if err = p.await(); err == nil {
			_, err = p.ResponseWriter.Write(piece)
			n += len(piece)
		}
	}
	if err != nil {
		return n, errors.Join(errGone, err)
	}
	return n, nil
}

// flush sends what was written.
func (p *patientWriter) flush() error {
	err := p.await()
	if err == nil {
		err = p.control.Flush()
	}
	if err != nil {
		return errors.Join(errGone, err)
	}
	return nil
}

// eventWriter writes an event stream (https://html.spec.whatwg.org/multipage/server-sent-events.html) to one client. It is
// safe for concurrent use; its errors are errGone.
type eventWriter struct {
	mu  sync.Mutex
	out *patientWriter
}

// send writes one event and waits until it is on its way. An empty id sends none, so what a client resumes from stays as it
// was. Neither part may hold a line break: data is JSON in one line.
func (e *eventWriter) send(id, name string, data []byte) error {
	frame := make([]byte, 0, len(id)+len(name)+len(data)+len("id: \nevent: \ndata: \n\n"))
	if id != "" {
		frame = append(append(append(frame, "id: "...), id...), '\n')
	}
	frame = append(append(append(frame, "event: "...), name...), '\n')
	frame = append(append(append(frame, "data: "...), data...), "\n\n"...)
	return e.write(frame)
}

func (e *eventWriter) write(b []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.out.Write(b); err != nil {
		return err
	}
	return e.out.flush()
}

// serveEvents answers with an event stream that parts write to, each in a goroutine of its own, until one of them ends, the
// client does, the server does, or ended is closed. What goes wrong then is logged: the answer has begun, and the client
// comes again.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request, ended <-chan struct{}, parts ...func(context.Context, *eventWriter) error) error {
	out := &eventWriter{out: newPatientWriter(w)}
	w.Header().Set("Content-Type", eventStream)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it back
	w.WriteHeader(http.StatusOK)
	if err := out.out.flush(); err != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	done := make(chan error, len(parts))
	for _, part := range parts {
		go func() { done <- part(ctx, out) }()
	}
	err := out.untilDone(ctx, done, ended)
	if ctx.Err() == nil && err != nil && !errors.Is(err, errGone) {
		s.Logger.Error("stream", "path", r.URL.Path, "err", err)
	}
	cancel()
	for range parts {
		<-done // nobody may write once the answer has ended
	}
	return nil
}

// untilDone waits, and keeps the connection from looking idle. What it takes from done it gives back.
func (e *eventWriter) untilDone(ctx context.Context, done chan error, ended <-chan struct{}) error {
	ticker := time.NewTicker(pingEvery)
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
