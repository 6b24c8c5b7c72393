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

// serving is one call on the server's side.
type serving struct {
	nc              *nats.Conn
	request         Request
	control, caller string
	cancel          context.CancelFunc
	granted         chan struct{} // closed by the grant
	received        chan struct{} // closed by the receipt of the result
	input           inputQueue

	mu             sync.Mutex
	reply, ask     string
	offer          string    // id of the offer
	room           sync.Cond // on mu: credit arrived, or the command was cancelled
	state          string    // the frame that is repeated: queued, offer or started
	ended          bool      // withdrawn or cancelled before the start, or finished
	start          []byte    // body of started
	result         []byte    // body of finished
	cancelled      bool
	missing        int   // consecutive 503 answers to probes
	sent, credited int64 // cost of the output that was sent, and that the caller consumed
	taken          int64 // cost of the input that the handler received
	sendErr        error // of output that could not be sent
	stdout, stderr int64 // bytes sent
}

func (s *server) newServing(e envelope, m *nats.Msg) *serving {
	x := &serving{
		nc: s.nc, request: e.Request, reply: m.Reply, ask: m.Header.Get(askHeader),
		control: ControlSubject(s.subject, e.id()), caller: CallerSubject(s.subject, e.id()),
		offer: rand.Text(), granted: make(chan struct{}), received: make(chan struct{}), start: s.start,
	}
	x.input.init(e.Input)
	x.request.Input = x.input.out
	x.room.L = &x.mu
	return x
}

// receive handles one frame of the caller, or a 503 answer to a probe. It never blocks.
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
	case frameReceived:
		if m.Header.Get(offerHeader) == x.offer && !isDone(x.received) {
			close(x.received)
		}
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

// grant handles a grant. It ignores a repeated grant and a grant of a withdrawn offer.
func (x *serving) grant(offer string) {
	switch {
	case offer != x.offer && x.state != frameStarted:
		x.giveUp()
	case offer == x.offer && x.state == frameOffer && !x.ended:
		x.setState(frameStarted)
		close(x.granted)
	}
}

// giveUp cancels the command, or makes sure that it does not start. x.mu must be held.
func (x *serving) giveUp() {
	x.ended = x.ended || x.state != frameStarted
	x.cancel()
}

// isGranted reports whether the command runs here.
func (x *serving) isGranted() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.state == frameStarted && !x.ended
}

// announce sends a state to the caller. The state is repeated until it changes.
func (x *serving) announce(state string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setState(state)
}

// setState is announce with x.mu held.
func (x *serving) setState(state string) {
	switch x.state = state; {
	case x.ended || state == "":
	case state == frameStarted:
		x.send(state, x.start)
	default:
		x.send(state, nil)
	}
}

// withdraw ends a call that was not granted. It returns false if the call was granted. notify says whether to send
// withdrawn, after which the caller starts another attempt.
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

// reattach directs the answers to a repeated request, unless the call has ended. It returns an error if the command is
// running already.
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
	if ask := m.Header.Get(askHeader); ask != x.ask { // otherwise the offer may be granted already
		x.ask, x.offer = ask, rand.Text()
	}
	x.setState(x.state)
	return true, nil
}

// credit stores the caller's total. It ignores a total that is lower than before or higher than what was sent.
func (x *serving) credit(body []byte) {
	total, err := strconv.ParseInt(string(body), 10, 64)
	if err != nil || total < x.credited || total > x.sent {
		return
	}
	x.credited = total
	x.room.Broadcast()
}

// watchCaller probes the caller and repeats the state, until the call ends. A stopped or slow caller is still
// subscribed, so it counts as alive.
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
			x.repeat()
		}
	}
	x.cancel()
}

// repeat probes the caller, and sends the state or the result again. This also keeps the reply subject of a quiet
// command from expiring, and shows the caller that the server is alive.
func (x *serving) repeat() {
	x.nc.PublishMsg(&nats.Msg{Subject: x.caller, Reply: x.control, Header: nats.Header{frameHeader: {frameProbe}}})
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.result != nil {
		x.send(frameFinished, x.result)
		return
	}
	x.setState(x.state)
}

// awaitReceipt repeats the result until the caller has received it or is gone, for ReceiptWait at most. A server that
// stops waits a second.
func (x *serving) awaitReceipt(stopping <-chan struct{}) {
	tick := time.NewTicker(callerProbe)
	defer tick.Stop()
	limit := ReceiptWait
	for waited := time.Duration(0); waited < limit && !x.isCallerGone(); waited += callerProbe {
		select {
		case <-x.received:
			return
		case <-tick.C:
		}
		if isDone(stopping) && limit == ReceiptWait {
			limit = waited + time.Second
		}
		if x.nc.IsConnected() {
			x.repeat()
		}
	}
}

// isCallerGone reports whether nothing was subscribed for the caller for CutOff.
func (x *serving) isCallerGone() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.missing > int(CutOff/callerProbe)
}

// send sends a frame with the offer and the current cost of output and input. Output is sent with x.mu held too, so the
// costs are correct when the frame arrives.
func (x *serving) send(kind string, body []byte) error {
	header := nats.Header{
		frameHeader: {kind}, askHeader: {x.ask}, offerHeader: {x.offer},
		sentHeader: {strconv.FormatInt(x.sent, 10)}, takenHeader: {strconv.FormatInt(x.taken, 10)},
	}
	return x.nc.PublishMsg(&nats.Msg{Subject: x.reply, Header: header, Data: body})
}

// finish sends the result. It ignores an error: awaitReceipt repeats it.
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
	x.result, _ = json.Marshal(r) // a struct of numbers and strings
	x.send(frameFinished, x.result)
}

// outputWriter sends one stream of a command's output.
type outputWriter struct {
	*serving
	kind  string
	bytes *int64
}

var errCallerGone = errors.New("write output: the caller cancelled and takes no more")

// Write sends p in chunks. It holds x.mu while it sends, so that the costs match the order of the frames. If a chunk
// cannot be sent, it cancels the command, because the output would have a hole.
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
