package realtime

import (
	"crypto/sha256"
	"slices"
	"time"
)

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
