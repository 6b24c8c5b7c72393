package realtime

import (
	"context"
	"crypto/sha256"
	"math"
	"slices"
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

const (
	maxResumePoints = 10_000
	resumePointLife = 24 * time.Hour
)

// resumePoints holds, for each login session and topic, the sequence up to which an ended connection had delivered the
// topic, so that the next connection of the session continues there. A topic can be continued for a day. If there are
// too many, the older half is deleted. Its zero value is empty. It is not safe for concurrent use.
type resumePoints struct {
	points map[[32]byte]resumePoint
}

type resumePoint struct {
	seq uint64
	at  time.Time
}

func resumeKey(session, topic string) [32]byte { return sha256.Sum256([]byte(session + "\n" + topic)) }

// Add stores the sequence of a topic.
func (p *resumePoints) Add(session, topic string, seq uint64, at time.Time) {
	if p.points == nil {
		p.points = map[[32]byte]resumePoint{}
	}
	p.points[resumeKey(session, topic)] = resumePoint{seq, at}
	if len(p.points) > maxResumePoints {
		p.dropOldest()
	}
}

// Take removes the sequence of a topic and returns it, and whether it is known.
func (p *resumePoints) Take(session, topic string) (seq uint64, known bool) {
	k := resumeKey(session, topic)
	found, ok := p.points[k]
	delete(p.points, k)
	return found.seq, ok && time.Since(found.at) < resumePointLife
}

func (p *resumePoints) dropOldest() {
	var times []time.Time
	for _, e := range p.points {
		times = append(times, e.at)
	}
	slices.SortFunc(times, time.Time.Compare)
	oldest := times[len(times)/2]
	for k, e := range p.points {
		if e.at.Before(oldest) {
			delete(p.points, k)
		}
	}
}
