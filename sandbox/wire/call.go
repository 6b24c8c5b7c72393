package wire

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
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

// receive handles one frame. Answers to probes arrive at the same inbox as the output, so a 503 never overtakes output
// that was sent before it.
func (c *call) receive(m *nats.Msg) {
	kind, offer := m.Header.Get(frameHeader), m.Header.Get(offerHeader)
	c.mu.Lock()
	if m.Header.Get("Status") == "503" {
		c.handleNoResponders()
		c.mu.Unlock()
		return
	}
	done, started := c.done, c.started
	isCurrent := m.Header.Get(askHeader) == c.attempt
	isGranted := c.granted != "" &&
		(offer == c.granted || kind == frameStdout || kind == frameStderr || kind == frameCredit)
	if isGranted {
		c.received, c.missing = true, 0
	}
	c.busy = true
	c.mu.Unlock()
	switch {
	case done:
	case kind == frameOffer && offer != "" || kind == frameQueued || kind == frameDeclined || kind == frameWithdrawn:
		if isCurrent {
			c.handleAnswer(kind, offer, m.Data)
		}
	case kind == frameStarted && isGranted:
		c.handleStarted(m)
	case kind == frameStdout && started && isGranted:
		c.handleOutput(&c.stdout, m.Data)
	case kind == frameStderr && started && isGranted:
		c.handleOutput(&c.stderr, m.Data)
	case kind == frameCredit && started && isGranted:
		c.handleCredit(string(m.Data))
	case kind == frameFinished:
		c.handleFinished(isGranted, m.Data)
	case kind == frameProbe:
	default:
		c.abandonInvalid(fmt.Sprintf("unexpected frame %q", oneLine(kind)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
	c.received = c.received || isGranted
}

// handleNoResponders handles a 503 answer: to the request before the start, to a probe after it. c.mu must be held.
func (c *call) handleNoResponders() {
	c.missing++
	switch {
	case c.granted != "" && c.missing > int(CutOff/serverProbe):
		c.end(lost("the worker is gone"), nil)
	case c.granted == "" && !c.isQueued: // else a worker may be back within StartTimeout
		c.end(Result{}, ErrNoWorker)
	}
}

// startAttempt sends the request with a new attempt id, for the first time or after a server has withdrawn. c.mu must
// be held.
func (c *call) startAttempt() error {
	c.attempts++
	c.granted, c.isQueued, c.declined, c.missing, c.attempt = "", false, "", 0, rand.Text()
	c.start.Reset(StartTimeout)
	return c.sendRequest()
}

// sendRequest sends the request of the current attempt. Servers that know the attempt ignore the repetition. c.mu must
// be held.
func (c *call) sendRequest() error {
	return c.nc.PublishMsg(&nats.Msg{Subject: c.subject, Reply: c.inbox, Header: nats.Header{askHeader: {c.attempt}},
		Data: c.body})
}

// handleAnswer handles an answer of a server to the request.
func (c *call) handleAnswer(kind, offer string, body []byte) {
	switch kind {
	case frameOffer, frameQueued:
		c.handleOffer(kind, offer)
	case frameDeclined:
		c.handleDeclined(body)
	case frameWithdrawn:
		c.handleWithdrawn(offer)
	}
}

// handleOffer grants the first offer. It answers each later offer with the same grant: other servers then withdraw, and
// the granted server may have missed the first grant.
func (c *call) handleOffer(kind, offer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.done:
	case kind == frameOffer && c.granted == "":
		c.granted, c.missing = offer, 0
	case c.granted == "":
		c.isQueued = true
		c.start.Reset(StartTimeout)
	}
	if c.granted != "" { // with the lock held, so that no cancel overtakes the grant
		header := nats.Header{frameHeader: {frameGrant}, askHeader: {c.attempt}, offerHeader: {c.granted}}
		c.nc.PublishMsg(&nats.Msg{Subject: c.control, Header: header})
	}
}

// handleDeclined stores the reason of a server that declined. Other servers may still offer, but within a shorter time.
func (c *call) handleDeclined(why []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.declined == "" && !c.isQueued {
		c.start.Reset(declinedWait)
	}
	c.declined = oneLine(string(why))
}

// handleWithdrawn starts another attempt if the granted server has withdrawn, or if a server has withdrawn before any
// grant.
func (c *call) handleWithdrawn(offer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done || c.granted != "" && c.granted != offer || c.started {
		return
	}
	if c.attempts == maxAttempts {
		c.end(Result{}, ErrNoWorker)
	} else if err := c.startAttempt(); err != nil {
		c.end(Result{}, err)
	}
}

// handleStarted handles started, which the server repeats. Each repetition has the current cost of output and input.
func (c *call) handleStarted(m *nats.Msg) {
	c.mu.Lock()
	isNew := !c.started
	c.started = true
	c.mu.Unlock()
	if isNew {
		c.handleStart(m.Data)
	}
	if sent, err := strconv.ParseInt(m.Header.Get(sentHeader), 10, 64); err == nil && sent != c.consumed {
		c.abandon("output was lost on the way")
		return
	}
	c.handleCredit(m.Header.Get(takenHeader))
	c.credit()
}

func (c *call) handleStart(body []byte) {
	var start Start
	if err := json.Unmarshal(body, &start); err != nil {
		c.abandonInvalid("start is not JSON")
		return
	}
	if c.request.Started != nil {
		c.request.Started(Start{Worker: oneLine(start.Worker), Isolation: oneLine(start.Isolation),
			Apart: start.Apart})
	}
	if c.request.Input != nil {
		go c.sendInput()
	}
}

// handleOutput writes a chunk and sends the server credit for it. After a writer has failed, the output is only
// counted.
func (c *call) handleOutput(to *output, chunk []byte) {
	if len(chunk) == 0 || len(chunk) > ChunkSize {
		c.abandonInvalid(fmt.Sprintf("chunk of %d bytes", len(chunk)))
		return
	}
	to.bytes += int64(len(chunk))
	if !isDone(c.broken) {
		if _, err := to.w.Write(chunk); err != nil {
			close(c.broken)
		}
	}
	c.consumed += int64(len(chunk)) + frameCost
	if c.consumed-c.credited >= Window/4 {
		c.credit()
	}
}

// credit sends the server the cost of the consumed output, and the number of the last input frame.
func (c *call) credit() {
	c.credited = c.consumed
	header := nats.Header{frameHeader: {frameCredit}, orderHeader: {strconv.FormatInt(c.order.Load(), 10)}}
	c.nc.PublishMsg(&nats.Msg{Subject: c.control, Header: header, Data: strconv.AppendInt(nil, c.consumed, 10)})
}

// handleFinished accepts the result of the granted server. Before a grant it accepts only a refusal.
func (c *call) handleFinished(isGranted bool, body []byte) {
	c.mu.Lock()
	granted := c.granted
	c.mu.Unlock()
	if !isGranted && granted != "" {
		return
	}
	var r Result
	if err := json.Unmarshal(body, &r); err != nil {
		c.abandonInvalid("result is not JSON")
		return
	}
	if err := r.validate(); err != nil {
		c.abandonInvalid("result: " + err.Error())
		return
	}
	r.Error, r.Signal = oneLine(r.Error), oneLine(r.Signal)
	if c.stdout.bytes != r.StdoutBytes || c.stderr.bytes != r.StderrBytes {
		r = lost("output was lost on the way: %d of %d bytes of stdout and %d of %d of stderr arrived",
			c.stdout.bytes, r.StdoutBytes, c.stderr.bytes, r.StderrBytes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if isGranted {
		header := nats.Header{frameHeader: {frameReceived}, offerHeader: {granted}}
		c.nc.PublishMsg(&nats.Msg{Subject: c.control, Header: header})
	}
	if isGranted || r.Reason == Refused {
		c.end(r, nil)
	}
}

func (c *call) abandonInvalid(how string) { c.abandon("the worker broke the protocol: " + how) }

// abandon cancels a command whose result would be incomplete.
func (c *call) abandon(why string) {
	c.send(frameCancel, "")
	c.endLost(why)
}

// WorkerInfo is what a worker tells about itself.
type WorkerInfo struct {
	Name      string `json:"name"`
	Isolation string `json:"isolation"`
	Reason    string `json:"reason,omitempty"` // why it has this isolation level
	Apart     bool   `json:"apart,omitempty"`  // see Start.Apart
	Workspace string `json:"workspace"`
	Running   int    `json:"running"`  // running commands
	Capacity  int    `json:"capacity"` // maximum of running commands; 0 is no limit
	Version   string `json:"version"`
}

// Workers lists the workers of a pool that answer within Gathering, by name. It returns an empty list if none answers.
func Workers(ctx context.Context, nc *nats.Conn, pool string) (workers []WorkerInfo, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("list workers of pool %s: %w", pool, err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, Gathering)
	defer cancel()
	answers, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, err
	}
	defer answers.Unsubscribe()
	who := nats.Msg{Subject: RunSubject(pool), Reply: answers.Subject, Header: nats.Header{frameHeader: {frameWho}}}
	if err := nc.PublishMsg(&who); err != nil {
		return nil, err
	}
	for {
		m, err := answers.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
			slices.SortFunc(workers, func(a, b WorkerInfo) int { return strings.Compare(a.Name, b.Name) })
			return workers, nil
		case err != nil:
			return nil, err
		}
		var w WorkerInfo
		if json.Unmarshal(m.Data, &w) != nil {
			continue // not a worker
		}
		for _, s := range []*string{&w.Name, &w.Isolation, &w.Reason, &w.Workspace, &w.Version} {
			*s = oneLine(*s)
		}
		workers = append(workers, w)
	}
}

func (s *server) sendInfo(m *nats.Msg) {
	info := s.Info
	s.mu.Lock()
	for _, x := range s.calls {
		if x.request.Op == Run && x.isGranted() {
			info.Running++
		}
	}
	s.mu.Unlock()
	body, _ := json.Marshal(info) // a struct of numbers and strings
	s.nc.Publish(m.Reply, body)
}
