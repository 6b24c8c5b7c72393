package wire

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// serving is one call on the server's side: what it sends to the caller and what it hears of it.
type serving struct {
	nc              *nats.Conn
	request         Request
	control, caller string
	cancel          context.CancelFunc
	granted         chan struct{} // closed by the grant
	input           inputQueue

	mu             sync.Mutex
	reply, ask     string
	offer          string    // names it in the grant
	room           sync.Cond // on mu: credit came, or the exec is cancelled
	state          string    // the frame that is repeated: queued, offer or started
	ended          bool      // it was given up before it started, or has finished
	start          []byte    // the body of started
	cancelled      bool
	missing        int   // consecutive 503 answers to probes
	sent, credited int64 // cost of the output sent, and of what the caller consumed
	taken          int64 // cost of the input the handler took
	sendErr        error // why output could not be sent
	stdout, stderr int64 // bytes sent
}

func (s *server) newServing(e envelope, m *nats.Msg) *serving {
	x := &serving{
		nc: s.nc, request: e.Request, reply: m.Reply, ask: m.Header.Get(askHeader), control: ControlSubject(s.subject, e.id()), caller: CallerSubject(s.subject, e.id()),
		offer: rand.Text(), granted: make(chan struct{}), start: s.start,
	}
	x.input.init(e.Input)
	x.request.Input = x.input.out
	x.room.L = &x.mu
	return x
}

func (x *serving) open(ctx context.Context, cancel context.CancelFunc) {
	x.cancel = cancel
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
		if x.missing++; x.state != frameStarted && x.missing >= goneAfter || x.missing > int(CutOff/callerProbe) {
			x.giveUp()
		}
		return
	}
	x.missing = 0
	switch kind := m.Header.Get(frameHeader); kind {
	case frameGrant:
		if m.Header.Get(askHeader) == x.ask {
			x.grant(m.Header.Get(offerHeader))
		}
	case frameCancel:
		x.giveUp()
	case frameCredit:
		x.credit(m.Data)
		if x.state == frameStarted && !x.input.isComplete(m.Header.Get(orderHeader)) {
			x.cancel()
		}
	case frameStdin, frameSize, frameSignal, frameEnd:
		if x.state == frameStarted && !x.input.put(kind, m) {
			x.cancel()
		}
	}
}

// grant hears who runs the command. A grant that comes again changes nothing, nor does one for an offer withdrawn.
func (x *serving) grant(offer string) {
	switch {
	case offer != x.offer && x.state != frameStarted:
		x.giveUp()
	case offer == x.offer && x.state == frameOffer && !x.ended:
		x.setState(frameStarted)
		close(x.granted)
	}
}

// giveUp cancels what runs; what does not yet will not. The lock is held.
func (x *serving) giveUp() {
	x.ended = x.ended || x.state != frameStarted
	x.cancel()
}

// isGranted says whether the command runs here.
func (x *serving) isGranted() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.state == frameStarted && !x.ended
}

// announce says something to the caller and, until something else is said, repeats it.
func (x *serving) announce(state string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setState(state)
}

// setState is tell with the lock held.
func (x *serving) setState(state string) {
	switch x.state = state; {
	case x.ended || state == "":
	case state == frameStarted:
		x.send(state, x.start)
	default:
		x.send(state, nil)
	}
}

// withdraw gives up a call that was not granted, for good; it fails when it was. Unless the caller has chosen another
// or is gone, it is told, so that it asks again.
func (x *serving) withdraw(notify bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.state == frameStarted {
		return false
	}
	x.ended = true
	if notify {
		x.send(frameWithdrawn, nil)
	}
	return true
}

// reattach takes a call that is asked for once more, unless it is over: its answers go where they are awaited now. One
// that runs already is an error.
func (x *serving) reattach(m *nats.Msg) (taken bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.ended:
		return false, nil
	case x.state == frameStarted:
		return false, errors.New("it is already running")
	}
	x.reply = m.Reply
	if ask := m.Header.Get(askHeader); ask != x.ask { // else the offer may be granted already
		x.ask, x.offer = ask, rand.Text()
	}
	x.setState(x.state)
	return true, nil
}

// credit takes the caller's running total. One that goes back or beyond what was sent is not a caller's, and ignored.
func (x *serving) credit(body []byte) {
	total, err := strconv.ParseInt(string(body), 10, 64)
	if err != nil || total < x.credited || total > x.sent {
		return
	}
	x.credited = total
	x.room.Broadcast()
}

// watchCaller probes the caller and repeats what was said last, until the call ends. A stopped or slow caller is still
// subscribed and so still there.
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
			x.repeat()
		}
	}
	x.cancel()
}

// repeat also keeps the reply subject of a quiet command from expiring, and the caller from taking silence for death.
func (x *serving) repeat() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setState(x.state)
}

// send says something that names the offer, and how far output and input are. Output is sent with the lock held too,
// so what is said here of it is true wherever this arrives.
func (x *serving) send(kind string, body []byte) error {
	header := nats.Header{
		frameHeader: {kind}, askHeader: {x.ask}, offerHeader: {x.offer},
		sentHeader: {strconv.FormatInt(x.sent, 10)}, takenHeader: {strconv.FormatInt(x.taken, 10)},
	}
	return x.nc.PublishMsg(&nats.Msg{Subject: x.reply, Header: header, Data: body})
}

// finish drops an error on purpose: a caller that does not hear it finds by its probes that the exec is gone.
func (x *serving) finish(r Result) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
	switch {
	case x.input.isBroken():
		r = lost("input was lost on the way")
	case x.sendErr != nil:
		r = lost("output could not be sent: %s", x.sendErr)
	}
	r.StdoutBytes, r.StderrBytes = x.stdout, x.stderr
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

// Write sends p in chunks. It holds the lock while sending, so that what counts as sent is in the order it was sent
// in. After a chunk that could not be sent there is a hole, so the command goes on for nobody.
func (o outputWriter) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	header := nats.Header{frameHeader: {o.kind}}
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
		if err := o.nc.PublishMsg(&nats.Msg{Subject: o.reply, Header: header, Data: chunk}); err != nil {
			o.sendErr = err
			o.cancel()
			return written, err
		}
		o.sent += cost
		*o.bytes += int64(len(chunk))
		written += len(chunk)
	}
	return written, nil
}
