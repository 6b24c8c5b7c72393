package log_test

import (
	"context"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"

	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
)

// lossOfTheMajorityIsNoticed stops the other servers than the leader.
func lossOfTheMajorityIsNoticed(t *testing.T, c *eventstest.Cluster, leader *server.Server) {
	is := is.New(t)
	w := watch(t, c)
	expect.Eventually(t, "a majority answers", func() bool { return answered(t, c) })
	is.Equal(w.Lost(), time.Duration(0))

	for _, s := range c.Servers {
		if s != leader {
			s.Shutdown()
			s.WaitForShutdown()
		}
	}
	began := time.Now()
	expect.Eventually(t, "the loss is noticed", func() bool { return w.Lost() > 0 })
	t.Log("noticed after", time.Since(began))
	_, err := c.Probe(t.Context())
	is.NoErr(err) // the leader has not stepped down yet
}

// lossOfTheLeaderIsNoticed comes when two of three servers run.
func lossOfTheLeaderIsNoticed(t *testing.T, c *eventstest.Cluster) {
	w := watch(t, c)
	expect.Eventually(t, "the two others make a majority", func() bool { return answered(t, c) && w.Lost() == 0 })
	leader := c.Leader()
	leader.Shutdown()
	leader.WaitForShutdown()
	expect.Eventually(t, "the loss is noticed", func() bool { return w.Lost() > 0 })
}

// watch runs a watch until the test ends.
func watch(t *testing.T, c *eventstest.Cluster) *log.QuorumWatch {
	w := &log.QuorumWatch{Log: c.Log}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return w
}

// answered reports whether the leader is in contact with another server.
func answered(t *testing.T, c *eventstest.Cluster) bool {
	servers, err := c.Probe(t.Context())
	if err != nil {
		return false
	}
	for _, other := range servers.Replicas {
		if other.Current && !other.Offline {
			return true
		}
	}
	return false
}
