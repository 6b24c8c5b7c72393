package realtime

import (
	"context"
	"errors"
	"sync"
	"time"

	"pocketcoder/handlers/account"
)

// client is one connection.
type client struct {
	id          string
	news        chan struct{} // holds one when there is something to do
	subscribing sync.Mutex    // makes requests about it take turns

	holder  string                   // who it counts for; guarded by registry.mu
	who     *account.Identity        // nil until somebody subscribes; guarded by registry.mu
	follows map[string]*subscription // by topic; guarded by registry.mu

	mu      sync.Mutex
	ended   <-chan struct{} // closed when the session is over
	expires time.Time       // of the token; zero for none
	behind  []*subscription // those that are to catch up before anything else is sent
	queue   []frame         // what waits to be sent
	sending []frame         // what was taken from there, until it is sent
	bytes   int             // of the queue
	failed  error           // why nothing is queued any more
}

// subscription is one topic of one client.
type subscription struct {
	*source // nil when nothing is ever sent
	client  *client
	topic   topic
	lead    []byte // of each of its events: everything before the data
	joined  bool   // of a hub: it was told what is being said; guarded by registry.mu

	// Guarded by the client's mu.
	from   uint64 // what changed up to here was sent, or is not wanted
	behind bool   // what came since is asked for before anything else is sent
	missed uint64 // the first change that was not queued, 0 for none
	over   bool
}

// source is somebody who knows what happens, and those who want to: an audience or a hub. Guarded by registry.mu.
type source struct {
	key  string
	subs map[*subscription]bool
	done uint64        // what changed up to here was handed to the subscriptions
	news chan struct{} // holds one when rows changed
	end  context.CancelFunc
}

func wake(news chan struct{}) {
	select {
	case news <- struct{}{}:
	default:
	}
}

// message is an event for all who follow the same: a record, or data as it is. Its bytes are shared.
type message struct {
	record      []byte // JSON
	first, last uint64 // sequences of the record's first and last change
	known       uint64 // changes up to here were told before
	removed     bool
	data        []byte
	replaces    string // an earlier message with the same that was not sent yet is needless
}

// frame is a message on its way to a client.
type frame struct {
	sub *subscription
	*message
	had uint64 // the client has everything up to here
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

// size is about what appendTo appends, in bytes.
func (f frame) size() int { return len(f.sub.lead) + len(f.record) + len(f.data) + 64 }

// action is what happened to the record since.
func (f frame) action() string {
	switch {
	case f.removed:
		return "delete"
	case f.first > f.had:
		return "create"
	}
	return "update"
}

// What waits for a client at most.
const (
	maxWaiting      = 1024 // events
	maxWaitingBytes = 4 << 20
)

// put queues messages for a subscription. It never waits.
func (c *client) put(sub *subscription, messages ...*message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range messages {
		if sub.over || m.last > 0 && m.last <= sub.from {
			continue
		}
		c.takeBack(sub, m.replaces)
		size := len(m.record) + len(m.data)
		if c.failed == nil && (len(c.queue) >= maxWaiting || c.bytes+size > maxWaitingBytes && len(c.queue) > 0) {
			c.failed = errSlow
		}
		if c.failed == nil {
			c.queue, c.bytes = append(c.queue, frame{sub: sub, message: m}), c.bytes+size
		} else if sub.missed == 0 {
			sub.missed = m.last
		}
	}
	wake(c.news)
}

// takeBack removes a message that another replaces. mu is held.
func (c *client) takeBack(sub *subscription, replaced string) {
	for i := len(c.queue) - 1; i >= 0 && replaced != ""; i-- {
		if f := c.queue[i]; f.sub == sub && f.replaces == replaced {
			c.bytes -= len(f.data)
			c.queue = append(c.queue[:i], c.queue[i+1:]...)
			return
		}
	}
}

// fail ends the connection.
func (c *client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
	wake(c.news)
}

// reached is up to where everything was sent, as far as we know. registry.mu is held.
func (c *client) reached(sub *subscription) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sub.behind {
		return sub.from
	}
	at := sub.done
	if sub.missed > 0 {
		at = min(at, sub.missed-1)
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

// Why a connection ends, besides errGone.
var (
	errClosed = errors.New("the client closed the connection")
	errSlow   = errors.New("the client is too slow")
	errOver   = errors.New("the session is over")
	errIdle   = errors.New("nothing happened for a while")
)
