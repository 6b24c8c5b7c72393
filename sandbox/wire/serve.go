package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Handler runs one command: it writes the command's output as it comes and returns how it ended.
type Handler func(ctx context.Context, r Request, stdout, stderr io.Writer) Result

// Serve takes requests on subject as a member of the queue group and calls handle for each, on its own goroutine, until
// ctx is done. The context handle gets is done when the caller cancels or is gone, or when ctx is; handle must then
// return soon. Its writers may be used at the same time; they block while the caller is Window behind, and fail once that
// context is done and the caller takes no more.
//
// At the end it takes no more requests, cancels the running ones and waits at most DrainTimeout for their results to
// leave. The error is nil when ctx ended it and everything left. A connection that closes under it is an error, and cancels
// the running ones too.
func Serve(ctx context.Context, nc *nats.Conn, subject, queue string, handle Handler) error {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{nc: nc, subject: subject, handle: handle, ctx: running, running: map[string]bool{}}
	closed := nc.StatusChanged(nats.CLOSED)
	defer nc.RemoveStatusListener(closed)
	requests, err := nc.QueueSubscribe(subject, queue, s.accept)
	if err != nil {
		return fmt.Errorf("serve %s: %w", subject, err)
	}
	select {
	case <-ctx.Done():
	case <-closed:
		return fmt.Errorf("serve %s: %w", subject, nats.ErrConnectionClosed)
	}
	if err := s.drain(requests); err != nil {
		return fmt.Errorf("stop serving %s: %w", subject, err)
	}
	return nil
}

type server struct {
	nc      *nats.Conn
	subject string
	handle  Handler
	ctx     context.Context // Serve's, for the callbacks of its subscription
	group   sync.WaitGroup

	mu      sync.Mutex
	running map[string]bool // by exec
}

func (s *server) drain(requests *nats.Subscription) error {
	late := time.After(DrainTimeout)
	ended := make(chan struct{})
	requests.SetClosedHandler(func(string) {
		s.group.Wait() // accept is not called any more
		close(ended)
	})
	if err := requests.Drain(); err != nil {
		return err
	}
	select {
	case <-ended:
		return s.nc.FlushTimeout(time.Second)
	case <-late:
		return fmt.Errorf("commands are still running after %s", DrainTimeout)
	}
}

// accept starts one request, or refuses it.
func (s *server) accept(m *nats.Msg) {
	x := &serving{nc: s.nc, reply: m.Reply}
	if m.Reply == "" {
		return // nobody to answer, so nobody who waits for a command
	}
	var r Request
	if err := json.Unmarshal(m.Data, &r); err != nil {
		x.finish(refused("the request is not JSON"))
		return
	}
	if err := r.validate(); err != nil {
		x.finish(refused("%s", err))
		return
	}
	if !s.enter(r.Exec) {
		x.finish(refused("exec %s is already running", r.Exec))
		return
	}
	x.control, x.caller = ControlSubject(s.subject, r.Exec), CallerSubject(s.subject, r.Exec)
	s.group.Go(func() {
		defer s.leave(r.Exec)
		if err := s.run(x, r); err != nil {
			x.finish(refused("%s", err))
		}
	})
}

func (s *server) enter(exec string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[exec] {
		return false
	}
	s.running[exec] = true
	return true
}

func (s *server) leave(exec string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, exec)
}

var errNotLetRun = errors.New("cancelled before the command started")

// run serves one exec from "started" to "finished". An error means that the command was not run.
func (s *server) run(x *serving, r Request) error {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	x.open(ctx, cancel)
	control, err := s.nc.Subscribe(x.control, x.receive)
	if err != nil {
		return err
	}
	defer control.Unsubscribe()
	go x.watchCaller(ctx)
	if err := x.send(frameStarted, nil); err != nil {
		return err
	}
	select {
	case <-x.granted:
	case <-ctx.Done():
		return errNotLetRun
	}
	result := s.handle(ctx, r, outputWriter{x, frameStdout, &x.stdout}, outputWriter{x, frameStderr, &x.stderr})
	x.finish(result)
	return nil
}
