// Package resume stores up to which sequence a topic was delivered in a login session, so that the next connection of
// the session continues there.
//
// Promises: a topic can be continued for a day. If there are too many, the older half is deleted.
//
// It must not know what a topic is about, nor what was delivered.
package resume

import (
	"crypto/sha256"
	"slices"
	"time"
)

const (
	maxPoints = 10_000
	life      = 24 * time.Hour
)

// Points holds, for each session and topic, the sequence up to which an ended connection had delivered the topic. Its
// zero value is empty. It is not safe for concurrent use.
type Points struct {
	points map[[32]byte]point
}

type point struct {
	seq uint64
	at  time.Time
}

func key(session, topic string) [32]byte { return sha256.Sum256([]byte(session + "\n" + topic)) }

// Add stores the sequence of a topic.
func (p *Points) Add(session, topic string, seq uint64, at time.Time) {
	if p.points == nil {
		p.points = map[[32]byte]point{}
	}
	p.points[key(session, topic)] = point{seq, at}
	if len(p.points) > maxPoints {
		p.dropOldest()
	}
}

// Take removes the sequence of a topic and returns it, and whether it is known.
func (p *Points) Take(session, topic string) (seq uint64, known bool) {
	k := key(session, topic)
	found, ok := p.points[k]
	delete(p.points, k)
	return found.seq, ok && time.Since(found.at) < life
}

func (p *Points) dropOldest() {
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
