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

// Handler does what one request asks for: it writes the output as it comes and returns how it ended. r.Input is closed
// when nothing more can come; of a command it need not be read.
type Handler func(ctx context.Context, r Request, stdout, stderr io.Writer) Result

// Server is what Serve needs to know. Only Handle is required.
type Server struct {
	Handle Handler
	// a queue group: one of its members hears a request, and offers at once. Empty: everybody hears it
	Queue string
	// what it says of itself; with a Capacity it runs no more commands at once. Running is filled in
	Info   WorkerInfo
	Serves func(workspace string) bool // whether it runs commands there; nil: it does anywhere
	Drain  time.Duration               // how long commands that run when ctx ends may go on
	Abort  <-chan struct{}             // closed: they may not any more
}

// Serve takes requests on subject and calls Handle for each it is granted, on its own goroutine, until ctx is done.
// The context Handle gets is done when the caller cancels or is gone, or when the time to drain is over; Handle must
// then return soon. Its writers may be used at the same time; they block while the caller is Window behind, and fail
// once that context is done and the caller takes no more.
//
// At the end it withdraws the offers that were not granted, lets the others go on for Drain, cancels what then still
// runs and waits at most StopTimeout for the results to leave. The error is nil when ctx ended it and everything left.
// A connection that closes under it is an error, and cancels the running ones too.
func Serve(ctx context.Context, nc *nats.Conn, subject string, c Server) error {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	start, err := json.Marshal(Start{Worker: c.Info.Name, Isolation: c.Info.Isolation})
	if err != nil {
		return fmt.Errorf("serve %s: encode start: %w", subject, err)
	}
	s := &server{
		Server: c, nc: nc, subject: subject, start: start, open: ctx, ctx: running, cancel: cancel,
		slots: newSlots(c.Info.Capacity), calls: map[string]*serving{},
	}
	closed := nc.StatusChanged(nats.CLOSED)
	defer nc.RemoveStatusListener(closed)
	var requests *nats.Subscription
	if c.Queue != "" {
		requests, err = nc.QueueSubscribe(subject, c.Queue, s.accept)
	} else {
		requests, err = nc.Subscribe(subject, s.accept)
	}
	if err != nil {
		return fmt.Errorf("serve %s: %w", subject, err)
	}
	select {
	case <-ctx.Done():
	case <-closed:
		return fmt.Errorf("serve %s: %w", subject, nats.ErrConnectionClosed)
	}
	if err := s.drain(requests, closed); err != nil {
		return fmt.Errorf("stop serving %s: %w", subject, err)
	}
	return nil
}

type server struct {
	Server
	nc      *nats.Conn
	subject string
	start   []byte          // what is said of itself at the start of a command
	open    context.Context // Serve's, for the callbacks of its subscription: done when nothing more is taken
	ctx     context.Context // done when what runs is cancelled
	cancel  context.CancelFunc
	slots   *slots
	group   sync.WaitGroup

	mu    sync.Mutex
	calls map[string]*serving // by id
}

func (s *server) drain(requests *nats.Subscription, closed <-chan nats.Status) error {
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
	case <-time.After(s.Drain):
	case <-s.Abort:
	case <-closed:
	}
	s.cancel()
	select {
	case <-ended:
		return s.nc.FlushTimeout(time.Second)
	case <-time.After(StopTimeout):
		return fmt.Errorf("commands are still running %s after they were cancelled", StopTimeout)
	}
}

// accept takes one request up, or refuses it.
func (s *server) accept(m *nats.Msg) {
	if m.Reply == "" {
		return // nobody to answer, so nobody who waits for a command
	}
	if m.Header.Get(frameHeader) == frameWho {
		s.sendInfo(m)
		return
	}
	var e envelope
	if err := json.Unmarshal(m.Data, &e); err != nil {
		s.refuse(m, errors.New("the request is not JSON"))
		return
	}
	if err := e.validate(); err != nil {
		s.refuse(m, err)
		return
	}
	if why := s.declineReason(e.Request); why != "" {
		replyTo(s.nc, m).send(frameDeclined, []byte(why))
		return
	}
	x, err := s.addCall(e, m)
	switch {
	case err != nil:
		s.refuse(m, fmt.Errorf("exec %s: %w", e.id(), err))
	case x != nil:
		s.group.Go(func() {
			defer s.removeCall(e.id(), x)
			s.run(x)
		})
	}
}

// replyTo answers a request that is not taken up.
func replyTo(nc *nats.Conn, m *nats.Msg) *serving {
	return &serving{nc: nc, reply: m.Reply, ask: m.Header.Get(askHeader)}
}

func (s *server) refuse(m *nats.Msg, why error) {
	replyTo(s.nc, m).finish(refused("%s", why))
}

// declineReason says why a request is not for this server; the caller is to hear it when no other takes it.
func (s *server) declineReason(r Request) string {
	if r.Workspace != "" && s.Serves != nil && !s.Serves(r.Workspace) {
		return fmt.Sprintf("worker %s serves %s, not %s", s.Info.Name, s.Info.Workspace, r.Workspace)
	}
	if r.Op != Dial {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.calls[r.Exec]; x == nil || x.request.Op != Run || !x.isGranted() {
		return fmt.Sprintf("exec %s does not run", r.Exec)
	}
	return ""
}

// addCall gives a new call, or nil when it is known already and goes on.
func (s *server) addCall(e envelope, m *nats.Msg) (*serving, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.calls[e.id()]; x != nil {
		if taken, err := x.reattach(m); taken || err != nil {
			return nil, err
		}
	}
	x := s.newServing(e, m)
	s.calls[e.id()] = x
	return x, nil
}

func (s *server) removeCall(id string, x *serving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[id] == x { // else another came while this one was ending
		delete(s.calls, id)
	}
}

// run serves one call from the offer to the result. Without a grant it ends silently.
func (s *server) run(x *serving) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	x.open(ctx, cancel)
	control, err := s.nc.Subscribe(x.control, x.receive)
	if err != nil {
		x.send(frameDeclined, []byte(oneLine(err.Error())))
		return
	}
	defer control.Unsubscribe()
	go x.watchCaller(ctx)
	if s.Queue == "" && x.request.Op == Run {
		if !s.slots.take(ctx, s.open, func() { x.announce(frameQueued) }) {
			x.withdraw(s.open.Err() != nil)
			return
		}
		defer s.slots.release()
	}
	x.announce(frameOffer)
	select {
	case <-x.granted:
	case <-s.open.Done():
	case <-ctx.Done():
	}
	if !isDone(x.granted) && x.withdraw(s.open.Err() != nil) {
		return
	}
	go x.deliverInput(ctx)
	result := s.Handle(ctx, x.request, outputWriter{x, frameStdout, &x.stdout}, outputWriter{x, frameStderr, &x.stderr})
	x.finish(result)
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
