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

// silence is Silence, except in tests.
var silence = Silence

// Call asks the servers behind subject to run r. It copies the command's output to stdout and stderr in order, and
// returns how the command ended.
//
// An error means that the command did not run: r is invalid, no server took it (ErrNoWorker), the connection is closed,
// or ctx ended before the start. After the start there is no error, only a Result. Its Reason is Lost if the server is
// gone or broke the protocol; then it is unknown whether the command ended.
//
// If ctx ends or a writer fails, Call cancels the command and waits at most CancelWait for its Result. Writers and
// r.Started are called one at a time. Only a call of them that blocks for longer may outlive Call. Call receives from
// r.Input only while the command runs, so senders must stop when Call returns.
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

// call is one running Call. receive handles frames on the goroutine of the subscription, wait runs on the caller's
// goroutine, and sendInput on a third one.
type call struct {
	nc                      *nats.Conn
	request                 Request
	body                    []byte // of the request
	subject, inbox, control string
	start                   *time.Timer // deadline for the next answer of a server before the start
	stdout, stderr          output
	consumed                int64         // cost of the output that the writers have consumed
	credited                int64         // the part of consumed that was sent to the server as credit
	disconnected, silent    time.Duration // time without a connection, and time without a frame of the server
	queuedProbes            int           // probes since the call was queued
	reconnects              uint64        // of the connection, when the request was sent last

	mu       sync.Mutex
	attempts int    // number of attempts
	attempt  string // id of the current attempt
	granted  string // id of the granted offer
	started  bool   // the granted server has sent started
	isQueued bool   // a server has sent queued
	declined string // reason of a server that declined
	missing  int    // consecutive 503 answers to probes
	received bool   // a frame arrived since the last probe, or is being handled
	busy     bool   // receive is running
	done     bool   // result and err are set
	result   Result
	err      error

	broken chan struct{} // closed by receive: a writer failed
	ended  chan struct{} // closed with done

	inputSent, inputTaken atomic.Int64  // cost of the input that was sent, and that the server consumed
	order                 atomic.Int64  // number of the last input frame
	room                  chan struct{} // inputTaken has grown
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
	// A correct server never has more than Window in flight, so these limits drop none of its frames.
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
			if c.nc.IsConnected() { // without a connection, probe ends the call after CutOff
				c.endUngranted(c.noWorker())
			}
		case <-done:
			c.endUngranted(ctx.Err()) // first, so that no grant follows the cancel
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

// noWorker returns ErrNoWorker, with the reason if a server declined.
func (c *call) noWorker() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.declined != "" {
		return DeclinedError(c.declined)
	}
	return ErrNoWorker
}

// endUngranted ends the call with err if no offer was granted. No offer is granted afterwards.
func (c *call) endUngranted(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.granted == "" {
		c.end(Result{}, err)
	}
}

// endLost ends the call without a result of the server. If an offer was granted, the command may have run.
func (c *call) endLost(why string) {
	c.endUngranted(errors.New(why))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(lost("%s", why), nil)
}

// end sets the result, once. c.mu must be held.
func (c *call) end(result Result, err error) {
	if c.done {
		return
	}
	c.done, c.result, c.err = true, result, err
	close(c.ended)
}

// probe probes the server if no frame arrived since the last probe. Time is counted in probes, so that no time passes
// while this process is stopped.
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
		return // the server may reconnect later than this side
	}
	c.mu.Lock()
	if n := c.nc.Stats().Reconnects; n != c.reconnects {
		c.reconnects, c.missing = n, 0
		if c.granted == "" && !c.done { // the last request may be lost
			c.start.Reset(StartTimeout)
			c.sendRequest()
		}
	}
	isGranted, isQuiet := c.granted != "", !c.received && !c.busy
	c.received = false
	if c.isQueued && !isGranted && !c.done {
		if c.queuedProbes++; c.queuedProbes%resendEvery == 0 {
			c.sendRequest()
		}
	}
	c.mu.Unlock()
	if c.silent += serverProbe; !isGranted || !isQuiet {
		c.silent = 0
		return
	}
	if c.silent >= silence {
		c.endLost("no message from the worker for " + silence.String())
		return
	}
	c.send(frameProbe, c.inbox)
}

// send ignores errors: the probes notice a lost message.
func (c *call) send(kind, reply string) {
	c.nc.PublishMsg(&nats.Msg{Subject: c.control, Reply: reply, Header: nats.Header{frameHeader: {kind}}})
}
