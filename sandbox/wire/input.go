package wire

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
)

// inputQueue holds, on the server's side, the input that the handler has not received yet. The caller sends at most
// InputWindow ahead.
type inputQueue struct {
	out chan Input

	mu      sync.Mutex
	waiting []frame
	cost    int64         // of waiting
	order   int64         // of the last frame
	ended   bool          // the caller has sent the end
	broken  bool          // a frame is missing or exceeds the window
	more    chan struct{} // a frame was added, or the input ended
}

type frame struct {
	input Input
	cost  int64
}

func (q *inputQueue) init(expected bool) {
	q.out, q.more, q.ended = make(chan Input), make(chan struct{}, 1), !expected
}

// put adds one frame, in order. It returns false if an earlier frame is missing or the frame is invalid.
func (q *inputQueue) put(kind string, m *nats.Msg) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	order, err := strconv.ParseInt(m.Header.Get(orderHeader), 10, 64)
	if err == nil && order <= q.order {
		return true // a repetition
	}
	f := frame{cost: int64(len(m.Data)) + frameCost}
	switch kind {
	case frameStdin:
		f.input.Data = m.Data
	case frameSize:
		f.input.Size = new(Terminal)
		if json.Unmarshal(m.Data, f.input.Size) != nil {
			f.input.Size = nil
		}
	case frameSignal:
		f.input.Signal = string(m.Data)
	}
	if err != nil || order != q.order+1 || q.ended || q.cost+f.cost > InputWindow || kind == frameSize &&
		f.input.Size == nil {
		q.broken = true
		return false
	}
	q.order = order
	if kind == frameEnd {
		q.ended = true
	} else {
		q.waiting, q.cost = append(q.waiting, f), q.cost+f.cost
	}
	select {
	case q.more <- struct{}{}:
	default:
	}
	return true
}

// isComplete reports whether all frames up to an order have arrived.
func (q *inputQueue) isComplete(order string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	last, err := strconv.ParseInt(order, 10, 64)
	q.broken = q.broken || err == nil && last > q.order
	return !q.broken
}

func (q *inputQueue) isBroken() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.broken
}

// next returns the first frame. ended reports that no frame will follow.
func (q *inputQueue) next() (f frame, ok, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return f, false, q.ended
	}
	return q.waiting[0], true, false
}

func (q *inputQueue) remove() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cost -= q.waiting[0].cost
	q.waiting = q.waiting[1:]
}

// deliverInput sends the input to the handler, and credit for it to the caller, until ctx is done. It closes the
// channel.
func (x *serving) deliverInput(ctx context.Context) {
	q := &x.input
	defer close(q.out)
	for credited := int64(0); ; {
		f, ok, ended := q.next()
		switch {
		case ended:
			return
		case !ok:
			select {
			case <-q.more:
			case <-ctx.Done():
				return
			}
			continue
		}
		select {
		case q.out <- f.input:
			q.remove()
		case <-ctx.Done():
			return
		}
		x.mu.Lock()
		x.taken += f.cost
		taken := x.taken
		x.mu.Unlock()
		if taken-credited >= InputWindow/4 {
			credited = taken
			x.nc.PublishMsg(&nats.Msg{Subject: x.reply, Header: nats.Header{frameHeader: {frameCredit}},
				Data: strconv.AppendInt(nil, taken, 10)})
		}
	}
}

// handleCredit stores the server's total of the input that it consumed.
func (c *call) handleCredit(taken string) {
	total, err := strconv.ParseInt(taken, 10, 64)
	if err != nil || total < c.inputTaken.Load() || total > c.inputSent.Load() {
		return
	}
	c.inputTaken.Store(total)
	select {
	case c.room <- struct{}{}:
	default:
	}
}

// sendInput sends the input to the server until the input or the call ends.
func (c *call) sendInput() {
	order := int64(0)
	send := func(kind string, body []byte) bool {
		cost := int64(len(body)) + frameCost
		for c.inputSent.Load()-c.inputTaken.Load()+cost > InputWindow {
			select {
			case <-c.room:
			case <-c.ended:
				return false
			}
		}
		c.inputSent.Add(cost)
		order++
		header := nats.Header{frameHeader: {kind}, orderHeader: {strconv.FormatInt(order, 10)}}
		if err := c.nc.PublishMsg(&nats.Msg{Subject: c.control, Header: header, Data: body}); err != nil {
			c.abandon("input could not be sent: " + err.Error())
			return false
		}
		c.order.Store(order)
		return true
	}
	for {
		select {
		case in, more := <-c.request.Input:
			if !more {
				send(frameEnd, nil)
				return
			}
			if !in.sendFrames(send) {
				return
			}
		case <-c.ended:
			return
		}
	}
}

// sendFrames sends one input as frames, until send returns false.
func (in Input) sendFrames(send func(kind string, body []byte) bool) bool {
	for chunk := range slices.Chunk(in.Data, ChunkSize) {
		if !send(frameStdin, chunk) {
			return false
		}
	}
	if in.Size != nil {
		body, _ := json.Marshal(in.Size) // a struct of numbers and a string
		if !send(frameSize, body) {
			return false
		}
	}
	return in.Signal == "" || send(frameSignal, []byte(in.Signal))
}
