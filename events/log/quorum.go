package log

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/sleep"
)

const (
	quorumPause     = 500 * time.Millisecond // between two probes
	quorumProbeTime = 2 * time.Second        // bounds one probe

	// quorumPatience is how long a majority may be silent. The servers of a stream answer its leader every second.
	quorumPatience = 4 * time.Second
)

// QuorumWatch finds out whether the NATS servers of a cluster store events at present. It probes the log while Run
// runs, and needs only a Log.
//
// An answer of the server that leads the stream proves nothing: a leader without a majority answers for up to 20 s more
// (nats-server 2.15.2, raft.go, lostQuorumInterval and lostQuorumCheck). So QuorumWatch also asks when the other
// servers last answered it.
type QuorumWatch struct {
	Log *Log

	silence atomic.Int64 // of a majority, as a time.Duration
}

// Run probes the log until ctx ends. It measures time in its own ticks, so that a process that does not run for a while
// does not blame the servers.
func (w *QuorumWatch) Run(ctx context.Context) error {
	answers := make(chan time.Duration)
	go w.probe(ctx, answers)
	tick := time.NewTicker(quorumPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.silence.Add(int64(quorumPause))
		case ago := <-answers:
			w.silence.Store(int64(ago))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// probe sends, after each probe that succeeds, how long ago a majority answered.
func (w *QuorumWatch) probe(ctx context.Context, answers chan<- time.Duration) {
	for {
		trying, end := context.WithTimeout(ctx, quorumProbeTime)
		servers, err := w.Log.Probe(trying)
		end()
		if ago, ok := majorityAnswered(servers); ok && err == nil {
			select {
			case answers <- ago:
			case <-ctx.Done():
				return
			}
		}
		if sleep.For(ctx, quorumPause) != nil {
			return
		}
	}
}

// Lost returns how long no majority of the servers has answered. It returns 0 while that is shorter than a slow machine
// explains.
func (w *QuorumWatch) Lost() time.Duration {
	if silence := time.Duration(w.silence.Load()); silence >= quorumPatience {
		return silence
	}
	return 0
}

// majorityAnswered returns how long ago a majority answered the leader. It reports false if there was none yet.
func majorityAnswered(servers *jetstream.ClusterInfo) (ago time.Duration, ok bool) {
	if servers == nil {
		return 0, true
	}
	all := []time.Duration{0} // the leader itself
	for _, other := range servers.Replicas {
		if !other.Offline && (other.Current || other.Active > 0) {
			all = append(all, other.Active)
		}
	}
	others := (len(servers.Replicas) + 1) / 2 // that make a majority with the leader
	if len(all) <= others {
		return 0, false
	}
	slices.Sort(all)
	return all[others], true
}
