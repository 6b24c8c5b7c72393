package log_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
)

// maxAnswerTime is far above the longest time in which a client must have an answer, because the machine may be busy.
const maxAnswerTime = time.Minute

// TestAppendsAreStoredOnceWhileTheLeaderChanges stops a server in the end. The next test uses the two others, because
// each start of a cluster takes seconds.
func TestAppendsAreStoredOnceWhileTheLeaderChanges(t *testing.T) {
	expect.Long(t, "runs a cluster of three servers")
	t.Parallel()
	is := is.New(t)
	fault := expect.CountFault(t, "events acknowledged", "of them found once")
	c := eventstest.OpenCluster(t)
	const writers = 4
	var mu sync.Mutex
	var acknowledged, failed []string // ids
	var slowest time.Duration
	var writing sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for w := range writers {
		writing.Go(func() {
			chat, last := fmt.Sprint("chat", w), uint64(0)
			for i := 0; ctx.Err() == nil; i++ {
				batch := []log.Write{{Event: eventOfChatOfSize(t, chat, fmt.Sprintf("evt_%d_%d", w, i), 100),
					Expect: log.Expect{Filter: events.ChatFilter(chat), Last: last}}}
				if w%2 == 0 {
					batch = append(batch, log.Write{Event: eventOfChatOfSize(t, chat, fmt.Sprintf("evt_%d_%d_b", w, i), 100)})
				}
				began := time.Now()
				seq, err := c.Commit(t.Context(), batch)
				mu.Lock()
				slowest = max(slowest, time.Since(began))
				for _, b := range batch {
					if err == nil {
						acknowledged = append(acknowledged, b.Event.ID)
					} else {
						failed = append(failed, b.Event.ID)
					}
				}
				mu.Unlock()
				if last = seq; err != nil {
					var u log.Unavailable
					if t.Log(err); !errors.As(err, &u) {
						t.Error("a client would get a 500")
					}
					return
				}
			}
		})
	}
	const changes = 5
	for range changes {
		c.Leader()
		c.StepDown()
	}
	leader := c.Leader() // the leader has stopped, and the others elect another one
	leader.Shutdown()
	leader.WaitForShutdown()
	c.Leader()
	stop()
	writing.Wait()
	t.Log("slowest append:", slowest, "acknowledged:", len(acknowledged), "failed:", len(failed))
	is.True(slowest < maxAnswerTime)
	times := map[string]int{}
	_, err := c.Fold(t.Context(), events.AllEvents, 0, func(e events.Event) error { times[e.ID]++; return nil })
	is.NoErr(err)
	once := 0
	for _, id := range acknowledged {
		if times[id] == 1 {
			once++
		}
	}
	is.Equal(once, len(acknowledged))
	for _, id := range failed {
		is.True(times[id] <= 1)
	}
	is.True(len(times) <= len(acknowledged)+len(failed))
	fault.Saw(len(acknowledged), once)
	for range changes + 1 {
		fault.Tried()
	}
	t.Run("a log without a leader is noticed", func(t *testing.T) { lossOfTheLeaderIsNoticed(t, c) })
}

// TestAClusterThatLosesItsMajority is one test because each start of a cluster takes seconds.
func TestAClusterThatLosesItsMajority(t *testing.T) {
	expect.Long(t, "runs a cluster of three servers")
	t.Parallel()
	c := eventstest.OpenCluster(t)
	t.Run("appends with the same expectation are both stored", func(t *testing.T) { appendsWithTheSameExpectation(t, c) })
	leader := c.Leader()
	t.Run("the loss is noticed while the leader still answers", func(t *testing.T) { lossOfTheMajorityIsNoticed(t, c, leader) })
	t.Run("the log is unavailable", func(t *testing.T) { logWithoutAMajorityIsUnavailable(t, c) })
}

// A cluster refuses an append while another one with the same expectation is in process, although there is no newer
// event.
func appendsWithTheSameExpectation(t *testing.T, c *eventstest.Cluster) {
	is := is.New(t)
	noEvent := log.Expect{Filter: events.ChatFilter("empty")}
	var writing sync.WaitGroup
	for w := range 4 {
		writing.Go(func() {
			for i := range 10 {
				one := log.Write{Event: eventOfChatOfSize(t, fmt.Sprint("chat", w), fmt.Sprintf("evt_%d_%d", w, i), 100),
					Expect: noEvent}
				if _, err := c.Commit(t.Context(), []log.Write{one}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	_, err := c.Append(t.Context(), eventOfChatOfSize(t, "empty", "evt_first", 100))
	is.NoErr(err)
	late := log.Write{Event: eventOfChatOfSize(t, "chat0", "evt_late", 100), Expect: noEvent}
	_, err = c.Commit(t.Context(), []log.Write{late})
	is.True(errors.Is(err, log.ErrConflict))
	_, err = c.Failing()
	is.NoErr(err)
}

// logWithoutAMajorityIsUnavailable comes after the loss of two servers.
func logWithoutAMajorityIsUnavailable(t *testing.T, c *eventstest.Cluster) {
	is := is.New(t)
	began := time.Now()
	_, err := c.Append(t.Context(), eventOfSize(t, "evt_2", 10))
	is.True(time.Since(began) < maxAnswerTime)
	var u log.Unavailable
	is.True(errors.As(err, &u))
	t.Log(err)
	is.True(log.IsUnavailable(err))
	_, err = c.Failing()
	is.True(log.IsUnavailable(err))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = c.Commit(ctx, []log.Write{{Event: eventOfSize(t, "evt_3", 10)}, {Event: eventOfSize(t, "evt_4", 10)}})
	is.True(errors.As(err, &u))
}
