package realtime

import (
	"context"
	"crypto/sha256"
	"math"
	"slices"
	"time"

	"pocketcoder/handlers/account"
)

// ending is up to where a connection that ended had sent everything of a topic.
type ending struct {
	seq uint64
	at  time.Time
}

const (
	// doubt is how long a connection may seem open after the other side is gone, so that what was sent meanwhile is lost:
	// Linux gives up a connection that acknowledges nothing after 924 s (net.ipv4.tcp_retries2).
	doubt = 16 * time.Minute

	maxEndings = 10_000
	endingLife = 24 * time.Hour
)

func endingKey(session, topic string) [32]byte { return sha256.Sum256([]byte(session + "\n" + topic)) }

// disconnect forgets a client and remembers how far it got. What was sent is certain to have arrived only when the client
// itself closed the connection, and then only without a proxy that may have done it in its place.
func (s *Realtime) disconnect(ctx context.Context, c *client, certain bool) {
	rt := &s.registry
	doubtful := uint64(math.MaxUint64)
	if !certain {
		var err error
		if doubtful, err = s.Log.At(ctx, time.Now().Add(-doubt)); err != nil {
			doubtful = 0
		}
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for text, sub := range c.follows {
		if sub.source != nil {
			rt.ended[endingKey(c.who.Session, text)] = ending{min(c.reached(sub), doubtful), time.Now()}
		}
		rt.unfollow(c, sub)
	}
	delete(rt.clients, c.id)
	rt.release(c)
	rt.forget()
}

// forget drops the oldest endings when there are too many. mu is held.
func (rt *registry) forget() {
	if len(rt.ended) <= maxEndings {
		return
	}
	var times []time.Time
	for _, e := range rt.ended {
		times = append(times, e.at)
	}
	slices.SortFunc(times, time.Time.Compare)
	oldest := times[len(times)/2]
	for key, e := range rt.ended {
		if e.at.Before(oldest) {
			delete(rt.ended, key)
		}
	}
}

// missed gives up to where earlier connections of the session had got everything of a topic. One that seems open may be dead:
// it is certain up to doubtful only. mu is held.
func (rt *registry) missed(c *client, who account.Identity, topic string, doubtful uint64) (since uint64, known bool) {
	since = math.MaxUint64
	key := endingKey(who.Session, topic)
	if e, ok := rt.ended[key]; ok && time.Since(e.at) < endingLife {
		since = e.seq
	}
	delete(rt.ended, key)
	for _, other := range rt.clients {
		if other == c || other.who == nil || other.who.Session != who.Session {
			continue
		}
		if sub := other.follows[topic]; sub != nil && sub.source != nil {
			since = min(since, doubtful, other.reached(sub))
		}
	}
	if since == math.MaxUint64 && who.Opened.Before(rt.started) {
		since = rt.before
	}
	return since, since != math.MaxUint64
}
