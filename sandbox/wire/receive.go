package wire

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
)

// receive handles one frame. Probes are answered on the same inbox, so a 503 never overtakes the output sent before it.
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

// handleNoResponders handles "no responders": to the request before the start, to a probe after it. The lock is held.
func (c *call) handleNoResponders() {
	c.missing++
	switch {
	case c.granted != "" && c.missing > int(CutOff/serverProbe):
		c.end(lost("the worker is gone"), nil)
	case c.granted == "" && !c.isQueued: // else the worker may be back within StartTimeout
		c.end(Result{}, ErrNoWorker)
	}
}

// startAttempt asks, for the first time or after somebody withdrew. The lock is held.
func (c *call) startAttempt() error {
	c.attempts++
	c.granted, c.isQueued, c.declined, c.missing, c.attempt = "", false, "", 0, rand.Text()
	c.start.Reset(StartTimeout)
	return c.sendRequest()
}

// sendRequest says the asking again too: to those who know it nothing changes. The lock is held.
func (c *call) sendRequest() error {
	return c.nc.PublishMsg(&nats.Msg{Subject: c.subject, Reply: c.inbox, Header: nats.Header{askHeader: {c.attempt}},
		Data: c.body})
}

// handleAnswer hears a word of somebody about who runs the command.
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

// handleOffer grants the first offer. To every later word of somebody who wants to run the command it says again whose
// it is: he drops out, or, if it is he, has not heard it.
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
	if c.granted != "" { // a cancel that follows must not overtake it
		header := nats.Header{frameHeader: {frameGrant}, askHeader: {c.attempt}, offerHeader: {c.granted}}
		c.nc.PublishMsg(&nats.Msg{Subject: c.control, Header: header})
	}
}

// handleDeclined keeps why somebody does not run the command. Others may; but they need not be waited for as long as a
// word of anybody.
func (c *call) handleDeclined(why []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.declined == "" && !c.isQueued {
		c.start.Reset(declinedWait)
	}
	c.declined = oneLine(string(why))
}

// handleWithdrawn asks again when somebody who was granted the command, or would have been, does not run it after all.
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

// handleStarted hears that the command runs. It hears so again and again, and each time how far output and input are.
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
		c.request.Started(Start{Worker: oneLine(start.Worker), Isolation: oneLine(start.Isolation)})
	}
	if c.request.Input != nil {
		go c.sendInput()
	}
}

// handleOutput hands a chunk to its writer and gives the server credit for it. After a writer failed, output is only
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

// credit tells the server what the writers took, and which input was published before this.
func (c *call) credit() {
	c.credited = c.consumed
	header := nats.Header{frameHeader: {frameCredit}, orderHeader: {strconv.FormatInt(c.order.Load(), 10)}}
	c.nc.PublishMsg(&nats.Msg{Subject: c.control, Header: header, Data: strconv.AppendInt(nil, c.consumed, 10)})
}

// handleFinished takes the result from whom the command was granted, or a refusal before that.
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
	if isGranted || r.Reason == Refused {
		c.end(r, nil)
	}
}

func (c *call) abandonInvalid(how string) { c.abandon("the worker broke the protocol: " + how) }

// abandon cancels a command whose result would be worth nothing.
func (c *call) abandon(why string) {
	c.send(frameCancel, "")
	c.endLost(why)
}
