package opencode

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/recording"
	"pocketcoder/events"
	"pocketcoder/expect"
)

const turn = "05-perm-bash-once" // one turn with an approved command

// checkDurable wants every durable event of the frames in the log: once, in the order of its session. Repeated updates of
// a running tool are fragments unless nobody remembers the first.
func checkDurable(t *testing.T, s *system, frames [][]byte) {
	is := is.New(t)
	is.Helper()
	facts, fragments := tell(frames)
	want, optional := map[string]string{}, map[string]bool{}
	for _, w := range facts {
		if w.Seq >= 0 {
			want[w.ID] = w.Properties
		}
	}
	for _, w := range fragments {
		optional[w.ID] = true
	}
	last := map[string]int64{}
	seen := map[string]bool{}
	for _, e := range s.events(events.AllEvents) {
		if _, ok := e.Subject.OpenCodeType(); !ok {
			continue
		}
		is.True(!seen[e.ID]) // twice
		seen[e.ID] = true
		if e.OpenCodeSeq < 0 {
			continue
		}
		is.True(optional[e.ID] || want[e.ID] == string(e.Data)) // unchanged
		var about struct{ SessionID string }
		is.NoErr(json.Unmarshal(e.Data, &about))
		session := about.SessionID
		if before, ok := last[session]; ok {
			is.True(e.OpenCodeSeq > before)
		}
		last[session] = e.OpenCodeSeq
		delete(want, e.ID)
	}
	is.Equal(len(want), 0) // lost
}

// missed is how many frames nobody hears while the bridge is away.
const missed = 4

func TestACutOfTheStreamLosesNoDurableEvent(t *testing.T) {
	frames := recording.Events(t, turn)[1:]
	for k := 0; k < len(frames); k += 3 { // a reconnect takes half a second
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			r := s.start().connected()
			s.happen(frames[:k]...)
			rest := min(k+missed, len(frames))
			s.reconnected(r, func() { s.miss(frames[k:rest]...) })
			s.happen(frames[rest:]...)
			s.drained()
			checkDurable(t, s, frames)
			s.appendedOnce(r)
		})
	}
}

// appendedOnce wants everything in the log to have been appended once: the log would not store it twice within two minutes
// whatever the bridges do.
func (s *system) appendedOnce(bridges ...*running) {
	s.t.Helper()
	last, err := s.log.Last(s.t.Context())
	s.must(err)
	expect.Eventually(s.t, "as many appended as stored", func() bool {
		var appended uint64
		for _, b := range bridges {
			appended += b.Condition().Stored
		}
		return appended == last
	})
}

func TestARestartOfTheBridgeLosesNoDurableEvent(t *testing.T) {
	frames := recording.Events(t, turn)[1:]
	for k := range frames {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			r := s.start().connected()
			s.happen(frames[:k]...)
			if k%2 == 0 { // half of them are stopped in the middle of taking it
				s.drained()
			}
			r.stop()
			rest := min(k+missed, len(frames))
			s.miss(frames[k:rest]...)
			again := s.start().connected()
			s.happen(frames[rest:]...)
			s.drained()
			checkDurable(t, s, frames)
			if k%2 == 0 {
				s.appendedOnce(r, again)
			}
		})
	}
}

func TestACutLosesNoSubagentsEvent(t *testing.T) {
	frames := recording.Events(t, "9i-perm-task")[1:]
	for k := 3; k < len(frames); k += 12 {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := newSystem(t)
			_, before := roots(s.outside, frames)
			s.miss(before...)
			s.start().connected()
			s.happen(frames[:k]...)
			s.cut()
			s.miss(frames[k:]...)
			s.back()
			expect.Eventually(t, "the session's last event is there", func() bool {
				facts, _ := tell(frames)
				for _, w := range slices.Backward(facts) {
					if w.Seq >= 0 {
						return slices.ContainsFunc(s.events(events.AllEvents), func(e events.Event) bool { return e.ID == w.ID })
					}
				}
				return false
			})
			checkDurable(t, s, append(before, frames...))
			chats := map[string]bool{}
			for _, e := range s.events(events.AllEvents) {
				if e.Subject.Scope == events.ScopeChat {
					chats[e.Subject.ID] = true
				}
			}
			is.Equal(len(chats), 1) // the subagent is in its parent's
		})
	}
}

func TestWhatComesTwiceIsStoredOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.start().connected()
	frames := recording.Events(t, turn)[1:]
	for _, f := range frames { // within one burst
		s.happen(f)
		s.say(f)
	}
	s.drained()
	s.say(frames...) // and later
	s.drained()
	checkDurable(t, s, frames)
	is.Equal(len(s.requests("POST", "/sync/history")), 2) // at the start: none of it looks like a gap
}

func TestAGapInTheStreamIsFilledFromTheHistory(t *testing.T) {
	frames := recording.Events(t, turn)[1:]
	var durable []int
	for i, f := range frames {
		if parsed(f).Payload.Type == "sync" {
			durable = append(durable, i)
		}
	}
	for _, k := range durable[:len(durable)-1] { // after the last there is nothing to notice a gap by
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := newSystem(t)
			r := s.start().connected()
			s.happen(frames[:k]...)
			s.miss(frames[k])
			s.happen(frames[k+1:]...)
			s.drained()
			checkDurable(t, s, frames)
			is.Equal(len(s.requests("POST", "/sync/history")), 3) // at the start, and for the gap
			expect.Contains(t, r.said.String(), "the live stream has a gap")
			is.Equal(len(s.requests("GET", "/global/event")), 1) // the connection was kept
		})
	}
}

func TestAGapWithinABurstLosesNothingBeforeIt(t *testing.T) {
	frames := recording.Events(t, turn)[1:]
	var all []client.Event
	for _, f := range frames {
		if e, ok, _ := client.ParseEvent(f); ok {
			all = append(all, e)
		}
	}
	for k := range slices.IndexFunc(all, func(e client.Event) bool { return e.Seq == 26 }) { // two before the last
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := newSystem(t)
			s.miss(frames...)
			b, _ := s.bridge()
			b.current.Store(client.New(s.url, "secret"))
			in := b.Ingest
			in.running = map[string]bool{}
			is.NoErr(in.take(t.Context(), all[:k], false))
			next := k + 1 + slices.IndexFunc(all[k+1:], func(e client.Event) bool { return e.Seq > 0 })
			burst := slices.Delete(slices.Clone(all[k:]), next-k, next-k+1)
			err := in.take(t.Context(), burst, false)
			is.True(errors.Is(err, errGap))
			is.NoErr(b.fetchHistory(t.Context()))
			is.NoErr(in.take(t.Context(), burst, false))
			checkDurable(t, s, frames)
		})
	}
}
