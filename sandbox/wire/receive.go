package wire

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
)

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
		c.abandonInvalid(fmt.Sprintf("unexpected frame %q", OneLine(kind)))
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
	c.declined = OneLine(string(why))
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
		c.request.Started(Start{Worker: OneLine(start.Worker), Isolation: OneLine(start.Isolation),
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
	r.Error, r.Signal = OneLine(r.Error), OneLine(r.Signal)
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
