package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// ErrNoWorker means that no server took the request, so the command did not run.
var ErrNoWorker = errors.New("no worker answers")

// DeclinedError is ErrNoWorker with the reason of a server that declined the request, for a person.
type DeclinedError string

func (d DeclinedError) Error() string { return ErrNoWorker.Error() + ": " + string(d) }
func (d DeclinedError) Unwrap() error { return ErrNoWorker }

// silence is Silence but in tests.
var silence = Silence

// Call asks the servers behind subject to run r, copies the command's output to stdout and stderr in the order it
// comes, and returns how the command ended.
//
// An error means that the command certainly was not run: a bad request, ErrNoWorker (nobody listens, all who did
// declined, or nobody offered within StartTimeout of the last word), a closed connection, or ctx done before the
// start. After the start there is no error, only a Result: Lost when the server is gone or broke the protocol, and
// whether the command ended is unknown.
//
// When ctx is done or a writer fails, the command is cancelled and Call waits at most CancelWait for its Result, Lost
// if none comes. Writers and r.Started are called one at a time; only one that blocks for longer than that wait may
// outlive Call. Nothing is taken from r.Input before the start nor after the end, so who writes to it must give up
// with Call.
func Call(ctx context.Context, nc *nats.Conn, subject string, r Request, stdout, stderr io.Writer) (Result, error) {
	e := r.withID()
	if err := e.validate(); err != nil {
		return Result{}, fmt.Errorf("call %s: %w", subject, err)
	}
	body, err := json.Marshal(e)
	if err != nil {
		return Result{}, fmt.Errorf("call %s: encode request: %w", subject, err)
	}
	c := &call{
		nc: nc, request: r, body: body, subject: subject, inbox: nc.NewInbox(), control: ControlSubject(subject, e.id()),
		stdout: output{w: stdout}, stderr: output{w: stderr}, start: time.NewTimer(StartTimeout),
		broken: make(chan struct{}), ended: make(chan struct{}), room: make(chan struct{}, 1),
	}
	defer c.start.Stop()
	result, err := c.run(ctx, subject, e)
	if err != nil {
		return Result{}, fmt.Errorf("call %s: %w", subject, err)
	}
	return result, nil
}

// call is one running Call. The frames arrive on one goroutine (receive), the waiting happens on another (wait), and
// input is sent on a third (speak).
type call struct {
	nc                      *nats.Conn
	request                 Request
	body                    []byte // of the request
	subject, inbox, control string
	start                   *time.Timer // until then somebody must offer
	stdout, stderr          output
	consumed                int64         // cost of the output the writers took
	credited                int64         // what of it the server was told
	disconnected, silent    time.Duration // how long there has been no connection, and nothing of the server
	queuedProbes            int           // how many probes the call has stood in line
	reconnects              uint64        // of the connection, when the request was sent last

	mu       sync.Mutex
	attempts int    // how often
	attempt  string // names the last time
	granted  string // the offer that was granted
	started  bool   // its server said so
	isQueued bool   // somebody is full
	declined string // why somebody did not offer
	missing  int    // consecutive 503 answers to probes
	received bool   // something arrived since the last probe, or is being worked on
	busy     bool   // receive is at work
	done     bool   // result and err are set
	result   Result
	err      error

	broken chan struct{} // closed by receive: a writer failed
	ended  chan struct{} // closed with done

	inputSent, inputTaken atomic.Int64  // cost of the input sent, and of what the server took
	order                 atomic.Int64  // of the last input published
	room                  chan struct{} // taken has grown
}

type output struct {
	w     io.Writer
	bytes int64
}

func (c *call) run(ctx context.Context, subject string, e envelope) (Result, error) {
	here, err := c.nc.Subscribe(CallerSubject(subject, e.id()), func(*nats.Msg) {})
	if err != nil {
		return Result{}, err
	}
	defer here.Unsubscribe()
	frames, err := c.nc.Subscribe(c.inbox, c.receive)
	if err != nil {
		return Result{}, err
	}
	defer frames.Unsubscribe()
	// An honest server never has more in flight than Window, so these limits drop nothing of it.
	if err := frames.SetPendingLimits(2*Window/frameCost, 2*Window); err != nil {
		return Result{}, err
	}
	c.mu.Lock()
	err = c.startAttempt()
	c.mu.Unlock()
	if err != nil {
		return Result{}, err
	}
	c.reconnects = c.nc.Stats().Reconnects
	return c.wait(ctx)
}

func (c *call) wait(ctx context.Context) (Result, error) {
	probe := time.NewTicker(serverProbe)
	defer probe.Stop()
	done, broken := ctx.Done(), c.broken
	var giveUp <-chan time.Time
	for {
		select {
		case <-c.ended:
			return c.result, c.err
		case <-c.start.C:
			if c.nc.IsConnected() { // else nobody could answer; probe gives up after CutOff
				c.endUngranted(c.noWorker())
			}
		case <-done:
			c.endUngranted(ctx.Err()) // first: no grant follows the cancel
			c.send(frameCancel, "")
			done, broken, giveUp = nil, nil, time.After(CancelWait)
		case <-broken:
			c.send(frameCancel, "")
			done, broken, giveUp = nil, nil, time.After(CancelWait)
		case <-giveUp:
			c.endLost("no result within " + CancelWait.String() + " of cancelling")
		case <-probe.C:
			c.probe()
		}
	}
}

// noWorker is ErrNoWorker with what is known of the reason.
func (c *call) noWorker() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.declined != "" {
		return DeclinedError(c.declined)
	}
	return ErrNoWorker
}

// endUngranted ends the call with err if no server was let run the command; from then on none will be.
func (c *call) endUngranted(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.granted == "" {
		c.end(Result{}, err)
	}
}

// endLost ends the call without a word from the server. The command may have run, if it was let.
func (c *call) endLost(why string) {
	c.endUngranted(errors.New(why))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(lost("%s", why), nil)
}

// end settles the result, once. The lock is held.
func (c *call) end(result Result, err error) {
	if c.done {
		return
	}
	c.done, c.result, c.err = true, result, err
	close(c.ended)
}

// probe asks whether the server still listens to this call, when nothing was heard of it since the last time. Time is
// counted in probes, so that none passes for a caller that is itself stopped.
func (c *call) probe() {
	if c.disconnected += serverProbe; c.nc.IsConnected() {
		c.disconnected = 0
	}
	if c.nc.IsClosed() || c.disconnected >= CutOff {
		c.endUngranted(nats.ErrDisconnected)
		c.endLost("the connection to NATS is lost")
		return
	}
	if c.disconnected > 0 {
		return // a probe would wait for the connection, and arrive before the worker is back
	}
	c.mu.Lock()
	if n := c.nc.Stats().Reconnects; n != c.reconnects {
		c.reconnects, c.missing = n, 0
		if c.granted == "" && !c.done { // what was sent last may be lost
			c.start.Reset(StartTimeout)
			c.sendRequest() // what is not sent is sent after the next reconnect
		}
	}
	isGranted, isQuiet := c.granted != "", !c.received && !c.busy
	c.received = false
	if c.isQueued && !isGranted && !c.done {
		if c.queuedProbes++; c.queuedProbes%resendEvery == 0 {
			c.sendRequest() // what is not sent is sent the next time
		}
	}
	c.mu.Unlock()
	if c.silent += serverProbe; !isGranted || !isQuiet {
		c.silent = 0
		return
	}
	if c.silent >= silence {
		c.endLost("nothing was heard of the worker for " + silence.String())
		return
	}
	c.send(frameProbe, c.inbox)
}

// send drops an error on purpose: what does not arrive is noticed by the probes.
func (c *call) send(kind, reply string) {
	c.nc.PublishMsg(&nats.Msg{Subject: c.control, Reply: reply, Header: nats.Header{frameHeader: {kind}}})
}
