package wire

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// serving is one exec on the server's side: what it sends to the caller and what it hears of it.
type serving struct {
	nc                     *nats.Conn
	reply, control, caller string
	cancel                 context.CancelFunc
	granted                chan struct{} // closed by the caller's first credit: run it

	mu             sync.Mutex
	room           sync.Cond // on mu: credit came, or the exec is cancelled
	started        bool      // granted is closed
	cancelled      bool
	missing        int   // consecutive 503 answers to probes
	sent, credited int64 // cost of the output sent, and of what the caller consumed
	stdout, stderr int64 // bytes sent
}

func (x *serving) open(ctx context.Context, cancel context.CancelFunc) {
	x.cancel, x.granted, x.room.L = cancel, make(chan struct{}), &x.mu
	context.AfterFunc(ctx, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.cancelled = true
		x.room.Broadcast()
	})
}

// receive handles one frame of the caller, or the 503 answer to a probe. It never blocks.
func (x *serving) receive(m *nats.Msg) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if m.Header.Get("Status") == "503" {
		if x.missing++; x.missing >= goneAfter {
			x.cancel()
		}
		return
	}
	x.missing = 0
	switch m.Header.Get(frameHeader) {
	case frameCancel:
		x.cancel()
	case frameCredit:
		x.credit(m.Data)
	}
}

// credit takes the caller's running total. One that goes back or beyond what was sent is not a caller's, and ignored.
func (x *serving) credit(body []byte) {
	total, err := strconv.ParseInt(string(body), 10, 64)
	if err != nil || total < x.credited || total > x.sent {
		return
	}
	x.credited = total
	x.room.Broadcast()
	if !x.started {
		x.started = true
		close(x.granted)
	}
}

// watchCaller probes the caller until the exec ends. A stopped or slow caller is still subscribed and so still there.
func (x *serving) watchCaller(ctx context.Context) {
	tick := time.NewTicker(callerProbe)
	defer tick.Stop()
	for cut := time.Duration(0); cut < CutOff; cut += callerProbe {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if x.nc.IsConnected() {
			cut = 0
			x.nc.PublishMsg(&nats.Msg{Subject: x.caller, Reply: x.control, Header: nats.Header{frameHeader: {frameProbe}}})
			x.send(frameProbe, nil) // keeps the reply subject of a quiet command from expiring
		}
	}
	x.cancel()
}

func (x *serving) send(kind string, body []byte) error {
	return x.nc.PublishMsg(&nats.Msg{Subject: x.reply, Header: nats.Header{frameHeader: {kind}}, Data: body})
}

// finish drops an error on purpose: a caller that does not hear it finds by its probes that the exec is gone.
func (x *serving) finish(r Result) {
	x.mu.Lock()
	r.StdoutBytes, r.StderrBytes = x.stdout, x.stderr
	x.mu.Unlock()
	r.Error = oneLine(r.Error)
	body, _ := json.Marshal(r) // a struct of numbers and strings
	x.send(frameFinished, body)
}

// outputWriter sends one stream of a command's output.
type outputWriter struct {
	*serving
	kind  string
	bytes *int64
}

var errCallerGone = errors.New("write output: the caller cancelled and takes no more")

// Write sends p in chunks. It holds the lock while sending, so that what counts as sent is in the order it was sent in.
func (o outputWriter) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	written := 0
	for written < len(p) {
		chunk := p[written:min(len(p), written+ChunkSize)]
		cost := int64(len(chunk)) + frameCost
		for o.sent-o.credited+cost > Window && !o.cancelled {
			o.room.Wait()
		}
		if o.sent-o.credited+cost > Window {
			return written, errCallerGone
		}
		if err := o.send(o.kind, chunk); err != nil {
			return written, err
		}
		o.sent += cost
		*o.bytes += int64(len(chunk))
		written += len(chunk)
	}
	return written, nil
}
