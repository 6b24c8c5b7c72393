package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Handler carries out one request: it writes the output as it comes, and returns the result. r.Input is closed when no
// input follows. The handler need not read it.
type Handler func(ctx context.Context, r Request, stdout, stderr io.Writer) Result

// Server is the configuration of Serve. Only Handle is required.
type Server struct {
	Handle Handler
	// queue group: one member receives each request, and offers at once. Empty: every server receives each request
	Queue string
	// answer to Workers. Capacity limits the concurrent commands. Running is set by Serve
	Info   WorkerInfo
	Serves func(workspace string) bool // reports whether it runs commands of a workspace; nil for every workspace
	// reports whether a quarantined item is here. Another server offers Keep and Dismiss later; nil for every item
	Holds func(item string) bool
	Drain time.Duration   // how long running commands may continue after ctx has ended
	Abort <-chan struct{} // ends the drain time when it is closed
}

// Serve accepts requests on subject until ctx is done, and calls Handle for each granted request on its own goroutine.
// The context of Handle is done when the caller cancels or is gone, or when the drain time is over. Handle must then
// return soon. Its writers may be used concurrently. They block while Window bytes are in flight, and fail after the
// end of the context if no credit arrives.
//
// When ctx is done, Serve withdraws the offers that were not granted. It lets running commands continue for Drain, then
// cancels them and waits at most StopTimeout for their results. It returns nil if all results were sent. If the
// connection closes, it cancels running commands and returns an error.
func Serve(ctx context.Context, nc *nats.Conn, subject string, c Server) error {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	start, err := json.Marshal(Start{Worker: c.Info.Name, Isolation: c.Info.Isolation, Apart: c.Info.Apart})
	if err != nil {
		return fmt.Errorf("serve %s: encode start: %w", subject, err)
	}
	s := &server{
		Server: c, nc: nc, subject: subject, start: start, open: ctx, ctx: running, cancel: cancel,
		slots: &slots{capacity: c.Info.Capacity, step: loadStep, changed: make(chan struct{})},
		calls: map[string]*serving{},
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
	start   []byte          // encoded Start
	open    context.Context // done when no more requests are accepted
	ctx     context.Context // done when running commands are cancelled
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

// accept handles one request: it starts to serve it, or declines or refuses it.
func (s *server) accept(m *nats.Msg) {
	if m.Reply == "" {
		return // without a reply subject there is no caller
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

// replyTo returns a serving that only answers the request.
func replyTo(nc *nats.Conn, m *nats.Msg) *serving {
	return &serving{nc: nc, reply: m.Reply, ask: m.Header.Get(askHeader)}
}

func (s *server) refuse(m *nats.Msg, why error) {
	replyTo(s.nc, m).finish(refused("%s", why))
}

// declineReason returns why this server does not run a request, "" if it does. The caller shows the reason if no other
// server runs it.
func (s *server) declineReason(r Request) string {
	if r.Workspace != "" && s.Serves != nil && !s.Serves(r.Workspace) {
		return fmt.Sprintf("worker %s serves %s, not %s", s.Info.Name, s.Info.Workspace, r.Workspace)
	}
	if r.Op != Dial && r.Op != Report {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.calls[r.Exec]; x == nil || x.request.Op != Run || !x.isGranted() {
		return fmt.Sprintf("exec %s does not run", r.Exec)
	}
	return ""
}

// addCall returns a new serving for a request. It returns nil if the request is a repetition of a known call.
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
	if s.calls[id] == x { // else a newer call has the id
		delete(s.calls, id)
	}
}

// run serves one call from the offer to the receipt of the result.
func (s *server) run(x *serving) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	x.cancel = cancel
	context.AfterFunc(ctx, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.cancelled = true
		x.room.Broadcast()
	})
	control, err := s.nc.Subscribe(x.control, x.receive)
	if err != nil {
		x.send(frameDeclined, []byte(oneLine(err.Error())))
		return
	}
	defer control.Unsubscribe()
	go x.watchCaller(ctx)
	if s.handle(ctx, x) {
		cancel()
		x.awaitReceipt(s.ctx.Done())
	}
}

// handle offers to run a command, and runs it in a slot once the offer is granted. It returns true if it has sent a
// result.
func (s *server) handle(ctx context.Context, x *serving) bool {
	if s.Queue == "" && x.request.Op == Run {
		if !s.slots.take(ctx, s.open, func() { x.announce(frameQueued) }) {
			x.withdraw(s.open.Err() != nil)
			return false
		}
		defer s.slots.release()
	}
	if x.request.Item != "" && s.Holds != nil && !s.Holds(x.request.Item) {
		select {
		case <-time.After(holderWait):
		case <-ctx.Done():
		}
	}
	x.announce(frameOffer)
	select {
	case <-x.granted:
	case <-s.open.Done():
	case <-ctx.Done():
	}
	if !isDone(x.granted) && x.withdraw(s.open.Err() != nil) {
		return false
	}
	go x.deliverInput(ctx)
	result := s.Handle(ctx, x.request, outputWriter{x, frameStdout, &x.stdout}, outputWriter{x, frameStderr, &x.stderr})
	x.finish(result)
	return true
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A busy server delays its offer by loadStep for each running command, at most loadMost of them. So the offer of a less
// busy server comes first. On one machine an offer is granted within 0.2 ms (measured).
var loadStep = 2 * time.Millisecond

const loadMost = 8

// slots are the concurrent commands of a server, and the queue of calls that wait to offer. An offer takes a slot,
// because it may be granted at any time.
type slots struct {
	capacity int           // 0 is no limit
	step     time.Duration // loadStep when the slots were created

	mu      sync.Mutex
	held    int
	queue   []*waiter
	changed chan struct{} // closed and replaced when a slot is free or the head of the queue changes
}

// waiter is a call in the queue.
type waiter struct{ since time.Time }

// take waits for a slot, in order of arrival. It calls onFull once if there is none. It returns false if one of the
// contexts is done.
func (s *slots) take(ctx, other context.Context, onFull func()) bool {
	me := &waiter{time.Now()}
	s.mu.Lock()
	s.queue = append(s.queue, me)
	defer func() {
		s.queue = slices.DeleteFunc(s.queue, func(t *waiter) bool { return t == me })
		s.wake()
		s.mu.Unlock()
	}()
	for notified := false; ctx.Err() == nil && other.Err() == nil; {
		isFull, wait, changed := s.capacity > 0 && s.held >= s.capacity, s.wait(me), s.changed
		if !isFull && wait <= 0 {
			s.held++
			return true
		}
		s.mu.Unlock()
		if isFull && !notified {
			onFull()
			notified = true
		}
		s.sleep(ctx, other, wait, changed)
		s.mu.Lock()
	}
	return false
}

// wait returns how long a waiter must still wait. s.mu must be held.
func (s *slots) wait(t *waiter) time.Duration {
	if s.queue[0] != t {
		return time.Hour // until the queue changes
	}
	return s.step*time.Duration(min(s.held, loadMost)) - time.Since(t.since)
}

func (s *slots) sleep(ctx, other context.Context, d time.Duration, changed <-chan struct{}) {
	if d <= 0 {
		d = time.Hour // full: until a slot is free
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	case <-other.Done():
	}
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
	s.wake()
}

// wake wakes all waiters. s.mu must be held.
func (s *slots) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}
