package wire

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// ErrNoWorker means that nobody took the request: the command certainly did not run.
var ErrNoWorker = errors.New("nobody answers")

// Call asks the server behind subject to run r, copies the command's output to stdout and stderr in the order it comes,
// and returns how the command ended.
//
// An error means that the command certainly was not run: a bad request, ErrNoWorker (nobody listens, or nobody said
// "started" within StartTimeout), a closed connection, or ctx done before the start. After the start there is no error,
// only a Result: Lost when the server is gone or broke the protocol, and whether the command ended is unknown.
//
// When ctx is done or a writer fails, the command is cancelled and Call waits at most CancelWait for its Result, Lost if
// none comes. Writers are called one at a time; only a Write that blocks for longer than that wait may outlive Call.
func Call(ctx context.Context, nc *nats.Conn, subject string, r Request, stdout, stderr io.Writer) (Result, error) {
	if r.Exec == "" {
		r.Exec = rand.Text()
	}
	if err := r.validate(); err != nil {
		return Result{}, fmt.Errorf("call %s: %w", subject, err)
	}
	c := &call{
		nc: nc, inbox: nc.NewInbox(), control: ControlSubject(subject, r.Exec),
		stdout: output{w: stdout}, stderr: output{w: stderr},
		broken: make(chan struct{}), ended: make(chan struct{}),
	}
	result, err := c.run(ctx, subject, r)
	if err != nil {
		return Result{}, fmt.Errorf("call %s: %w", subject, err)
	}
	return result, nil
}

// call is one running Call. The frames arrive on one goroutine (receive), the waiting happens on another (wait).
type call struct {
	nc             *nats.Conn
	inbox, control string
	stdout, stderr output
	consumed       int64         // cost of the output the writers took
	credited       int64         // what of it the server was told
	cut            time.Duration // how long there has been no connection

	mu      sync.Mutex
	granted bool // the server was told to run the command
	missing int  // consecutive 503 answers to probes
	heard   bool // something arrived since the last probe
	done    bool // result and err are set
	result  Result
	err     error

	broken chan struct{} // closed by receive: a writer failed
	ended  chan struct{} // closed with done
}

type output struct {
	w     io.Writer
	bytes int64
}

func (c *call) run(ctx context.Context, subject string, r Request) (Result, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return Result{}, fmt.Errorf("encode request: %w", err)
	}
	presence, err := c.nc.Subscribe(CallerSubject(subject, r.Exec), func(*nats.Msg) {})
	if err != nil {
		return Result{}, err
	}
	defer presence.Unsubscribe()
	frames, err := c.nc.Subscribe(c.inbox, c.receive)
	if err != nil {
		return Result{}, err
	}
	defer frames.Unsubscribe()
	// An honest server never has more in flight than Window, so these limits drop nothing of it.
	if err := frames.SetPendingLimits(2*Window/frameCost, 2*Window); err != nil {
		return Result{}, err
	}
	if !c.nc.IsConnected() {
		return Result{}, nats.ErrDisconnected
	}
	if err := c.nc.PublishRequest(subject, c.inbox, body); err != nil {
		return Result{}, err
	}
	return c.wait(ctx)
}

func (c *call) wait(ctx context.Context) (Result, error) {
	start := time.NewTimer(StartTimeout)
	defer start.Stop()
	probe := time.NewTicker(serverProbe)
	defer probe.Stop()
	done, broken := ctx.Done(), c.broken
	var giveUp <-chan time.Time
	for {
		select {
		case <-c.ended:
			return c.result, c.err
		case <-start.C:
			c.neverRun(ErrNoWorker)
		case <-done:
			c.send(frameCancel, "", nil)
			c.neverRun(ctx.Err())
			done, broken, giveUp = nil, nil, time.After(CancelWait)
		case <-broken:
			c.send(frameCancel, "", nil)
			done, broken, giveUp = nil, nil, time.After(CancelWait)
		case <-giveUp:
			c.lose("no result within " + CancelWait.String() + " of cancelling")
		case <-probe.C:
			c.probe()
		}
	}
}

// neverRun ends the call with err if the server was not let run the command; from then on it will not be.
func (c *call) neverRun(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.granted {
		c.end(Result{}, err)
	}
}

// lose ends the call without a word from the server. The command may have run, if it was let.
func (c *call) lose(why string) {
	c.neverRun(errors.New(why))
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

// probe asks whether the server still listens to this exec, when nothing was heard of it since the last time.
func (c *call) probe() {
	if c.cut += serverProbe; c.nc.IsConnected() {
		c.cut = 0
	}
	if c.nc.IsClosed() || c.cut >= CutOff {
		c.lose("the connection to NATS is lost")
		return
	}
	c.mu.Lock()
	ask := c.granted && !c.heard
	c.heard = false
	c.mu.Unlock()
	if ask {
		c.send(frameProbe, c.inbox, nil)
	}
}

// send drops an error on purpose: what does not arrive is noticed by the probes.
func (c *call) send(kind, reply string, body []byte) {
	c.nc.PublishMsg(&nats.Msg{Subject: c.control, Reply: reply, Header: nats.Header{frameHeader: {kind}}, Data: body})
}

// receive handles one frame. Probes are answered on the same inbox, so a 503 never overtakes the output sent before it.
func (c *call) receive(m *nats.Msg) {
	if m.Header.Get("Status") == "503" {
		c.nobody()
		return
	}
	c.mu.Lock()
	c.heard, c.missing = true, 0
	granted, done := c.granted, c.done
	c.mu.Unlock()
	kind := m.Header.Get(frameHeader)
	switch {
	case done:
	case kind == frameStarted && !granted:
		c.grant()
	case kind == frameStdout && granted:
		c.copy(&c.stdout, m.Data)
	case kind == frameStderr && granted:
		c.copy(&c.stderr, m.Data)
	case kind == frameFinished:
		c.finish(m.Data)
	case kind == frameProbe:
	default:
		c.violated(fmt.Sprintf("unexpected frame %q", oneLine(kind)))
	}
}

// nobody handles "no responders": to the request before the start, to a probe after it.
func (c *call) nobody() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing++
	if !c.granted {
		c.end(Result{}, ErrNoWorker)
	} else if c.missing >= goneAfter {
		c.end(lost("the worker is gone"), nil)
	}
}

// grant lets the server run the command, unless the call has just been given up.
func (c *call) grant() {
	c.mu.Lock()
	c.granted = !c.done
	granted := c.granted
	c.mu.Unlock()
	if granted {
		c.send(frameCredit, "", []byte("0"))
	}
}

// copy hands a chunk to its writer and gives the server credit for it. After a writer failed, output is only counted.
func (c *call) copy(to *output, chunk []byte) {
	if len(chunk) == 0 || len(chunk) > ChunkSize {
		c.violated(fmt.Sprintf("chunk of %d bytes", len(chunk)))
		return
	}
	to.bytes += int64(len(chunk))
	select {
	case <-c.broken:
	default:
		if _, err := to.w.Write(chunk); err != nil {
			close(c.broken)
		}
	}
	c.consumed += int64(len(chunk)) + frameCost
	if c.consumed-c.credited >= Window/4 {
		c.credited = c.consumed
		c.send(frameCredit, "", strconv.AppendInt(nil, c.consumed, 10))
	}
}

func (c *call) finish(body []byte) {
	var r Result
	if err := json.Unmarshal(body, &r); err != nil {
		c.violated("result is not JSON")
		return
	}
	if err := r.validate(); err != nil {
		c.violated("result: " + err.Error())
		return
	}
	r.Error, r.Signal = oneLine(r.Error), oneLine(r.Signal)
	if c.stdout.bytes != r.StdoutBytes || c.stderr.bytes != r.StderrBytes {
		r = lost("output was lost on the way: %d of %d bytes of stdout and %d of %d of stderr arrived",
			c.stdout.bytes, r.StdoutBytes, c.stderr.bytes, r.StderrBytes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(r, nil)
}

func (c *call) violated(how string) {
	c.send(frameCancel, "", nil)
	c.lose("the worker broke the protocol: " + how)
}
