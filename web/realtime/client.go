package realtime

import (
	"context"
	"errors"
	"sync"
	"time"

	"pocketcoder/handlers/account"
	"pocketcoder/web/api"
)

type client struct {
	api         *api.Server
	id          string
	wake        chan struct{} // capacity 1: signals that the client has work
	subscribing sync.Mutex    // serializes the requests about this client

	countedFor    string                   // the address or account that it counts for; guarded by registry.mu
	identity      *account.Identity        // nil for a guest; guarded by registry.mu
	subscriptions map[string]*subscription // by topic; guarded by registry.mu

	mu         sync.Mutex
	ended      <-chan struct{} // closed when the session ends
	expires    time.Time       // of the token; zero for none
	account    string          // api.AccountKey, to which the queued bytes are charged
	catchingUp []*subscription // subscriptions to catch up before other events are sent
	queue      []frame         // frames to send
	sending    []frame         // frames taken from queue, until they are sent
	bytes      int             // of the queue
	counted    int             // bytes of queue that are counted for the account
	pending    int             // bytes of sending that are counted for the account
	err        error           // why the connection ends; nothing is queued after it is set
}

// subscription is one topic of one client.
type subscription struct {
	*source // nil if the topic has no events
	client  *client
	topic   topic
	lead    []byte // of each of its events: everything before the data
	joined  bool   // to a live chat: the snapshots were queued; guarded by registry.mu

	// Guarded by the client's mu.
	from        uint64 // changes up to here were sent or are not needed
	catchUp     bool   // later changes are read before anything else is sent
	firstMissed uint64 // the first change that was not queued, 0 for none
	ended       bool
}

// source is an audience or a live chat, with its subscriptions. registry.mu guards it.
type source struct {
	key  string
	subs map[*subscription]bool
	done uint64        // changes up to here were passed to the subscriptions
	wake chan struct{} // capacity 1: signals that rows changed
	end  context.CancelFunc
}

func wake(news chan struct{}) {
	select {
	case news <- struct{}{}:
	default:
	}
}

// message is an event for several clients: a record, or other data. Its bytes are shared.
type message struct {
	record      []byte // JSON
	first, last uint64 // sequences of the record's first and last change
	known       uint64 // sequence up to which changes were sent before
	removed     bool
	data        []byte
	replaces    string // an earlier message with the same value is dropped if it was not sent yet
}

// frame is a message for one client.
type frame struct {
	sub *subscription
	*message
	charged   int    // bytes that are counted for the account
	clientHas uint64 // sequence up to which the client has all changes
}

// appendTo appends the event as PocketBase writes it.
func (f frame) appendTo(b []byte) []byte {
	b = append(b, f.sub.lead...)
	if f.record == nil {
		b = append(b, f.data...)
	} else {
		b = append(append(append(b, `{"action":"`...), f.action()...), `","record":`...)
		b = append(append(b, f.record...), '}')
	}
	return append(b, "\n\n"...)
}

// size is the approximate number of bytes that appendTo appends.
func (f frame) size() int { return len(f.sub.lead) + len(f.record) + len(f.data) + 64 }

// action is the change of the record since the client last got it.
func (f frame) action() string {
	switch {
	case f.removed:
		return "delete"
	case f.first > f.clientHas:
		return "create"
	}
	return "update"
}

// The largest queue of a client.
const (
	maxQueued      = 1024 // events
	maxQueuedBytes = 4 << 20
)

// enqueue queues messages for a subscription. It never blocks: a full queue ends the connection.
func (c *client) enqueue(sub *subscription, messages ...*message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range messages {
		if sub.ended || m.last > 0 && m.last <= sub.from {
			continue
		}
		c.dropReplaced(sub, m.replaces)
		size := len(m.record) + len(m.data)
		counted := 0
		if c.bytes+size > api.WritePiece { // small events arrive while the account has too much to read
			counted = size
		}
		if c.err == nil && (len(c.queue) >= maxQueued || c.bytes+size > maxQueuedBytes && len(c.queue) > 0 ||
			counted > 0 && !c.api.AddUnsent(c.account, counted)) {
			c.err = errSlow
		}
		if c.err == nil {
			c.queue = append(c.queue, frame{sub: sub, message: m, charged: counted})
			c.bytes, c.counted = c.bytes+size, c.counted+counted
		} else if sub.firstMissed == 0 {
			sub.firstMissed = m.last
		}
	}
	wake(c.wake)
}

// dropReplaced removes the queued message that another one replaces. mu must be held.
func (c *client) dropReplaced(sub *subscription, replaced string) {
	for i := len(c.queue) - 1; i >= 0 && replaced != ""; i-- {
		if f := c.queue[i]; f.sub == sub && f.replaces == replaced {
			c.bytes -= len(f.data)
			c.counted -= f.charged
			c.api.RemoveUnsent(c.account, f.charged)
			c.queue = append(c.queue[:i], c.queue[i+1:]...)
			return
		}
	}
}

// fail ends the connection.
func (c *client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	wake(c.wake)
}

// delivered returns the sequence up to which all changes are known to be sent. registry.mu must be held.
func (c *client) delivered(sub *subscription) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sub.catchUp {
		return sub.from
	}
	at := sub.done
	if sub.firstMissed > 0 {
		at = min(at, sub.firstMissed-1)
	}
	for _, waiting := range [][]frame{c.sending, c.queue} {
		for _, f := range waiting {
			if f.sub == sub && f.last > 0 {
				at = min(at, f.last-1)
			}
		}
	}
	return max(at, sub.from)
}

// The reasons why a connection ends, besides api.ErrGone.
var (
	errClosed      = errors.New("the client closed the connection")
	errSlow        = errors.New("the client is too slow")
	errSessionOver = errors.New("the session is over")
	errIdle        = errors.New("nothing happened for a while")
)
