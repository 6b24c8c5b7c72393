package realtime

import (
	"context"
	"math"
	"time"

	"pocketcoder/handlers/account"
)

// deliveryDoubt is how long a connection may seem open after the client is gone. Events sent meanwhile are lost. Linux
// ends a connection without acknowledgements after 924 s (net.ipv4.tcp_retries2).
const deliveryDoubt = 16 * time.Minute

// disconnect removes a client and stores its resume points. Delivery is certain only if the client itself closed the
// connection and no proxy is in between.
func (s *Realtime) disconnect(ctx context.Context, c *client, certain bool) {
	rt := &s.registry
	doubtful := uint64(math.MaxUint64)
	if !certain {
		var err error
		if doubtful, err = s.Log.At(ctx, time.Now().Add(-deliveryDoubt)); err != nil {
			doubtful = 0
		}
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for text, sub := range c.subscriptions {
		if sub.source != nil {
			rt.ended.Add(c.identity.Session, text, min(c.delivered(sub), doubtful), time.Now())
		}
		rt.unfollow(c, sub)
	}
	delete(rt.clients, c.id)
	rt.release(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.api.RemoveUnsent(c.account, c.counted+c.pending) // nothing is queued any more
}

// resumeAfter returns the sequence up to which earlier connections of the session have delivered a topic. Another
// open connection may be dead, so it counts only up to doubtful. mu must be held.
func (rt *registry) resumeAfter(c *client, identity account.Identity, topic string,
	doubtful uint64) (since uint64, known bool) {
	since, known = rt.ended.Take(identity.Session, topic)
	if !known {
		since = math.MaxUint64
	}
	for _, other := range rt.clients {
		if other == c || other.identity == nil || other.identity.Session != identity.Session {
			continue
		}
		if sub := other.subscriptions[topic]; sub != nil && sub.source != nil {
			since = min(since, doubtful, other.delivered(sub))
		}
	}
	if since == math.MaxUint64 && identity.Opened.Before(rt.started) {
		since = rt.before
	}
	return since, since != math.MaxUint64
}
