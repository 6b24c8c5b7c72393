package ingest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/ingest"
	"pocketcoder/bridge/opencode/opencodetest"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
)

const turn = "05-perm-bash-once" // one turn with an approved command

// checkDurable checks that every durable event of the frames is in the log once, in the order of its session. Repeated
// updates of a running tool are fragments, unless the first update was lost.
func checkDurable(t *testing.T, s *bridgetest.System, frames [][]byte) {
	is := is.New(t)
	is.Helper()
	facts, fragments := readRecording(frames)
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
	for _, e := range s.Events(events.AllEvents) {
		if _, ok := e.Subject.OpenCodeType(); !ok {
			continue
		}
		is.True(!seen[e.ID]) // twice
		seen[e.ID] = true
		if e.OpenCodeSeq < 0 {
			continue
		}
		is.True(optional[e.ID] || want[e.ID] == string(e.Data)) // unchanged
		var properties struct{ SessionID string }
		is.NoErr(json.Unmarshal(e.Data, &properties))
		session := properties.SessionID
		if before, ok := last[session]; ok {
			is.True(e.OpenCodeSeq > before)
		}
		last[session] = e.OpenCodeSeq
		delete(want, e.ID)
	}
	is.Equal(len(want), 0) // lost
}

// missedFrames is how many frames arrive while the bridge is away.
const missedFrames = 4

var (
	cutsFirst = flag.Int("cuts.first", rand.IntN(cutStep), "the first `place` of those where the tests cut events, below 4")
	cutsAll   = flag.Bool("cuts.all", false, "cut events at all these places")
)

// cutStep is the number of places between two cuts.
const cutStep = 4

// cuts returns where a test cuts a row of events: once between each two kinds that follow each other somewhere. Without
// -cuts.all it returns each fourth of these places, from a random one on.
func cuts(t *testing.T, kinds []string) (all []int) {
	t.Logf("repeat with -cuts.first=%d", *cutsFirst)
	seen, before := map[[2]string]bool{}, ""
	for k, kind := range kinds {
		pair := [2]string{before, kind}
		if !seen[pair] && (*cutsAll || len(seen)%cutStep == *cutsFirst) {
			all = append(all, k)
		}
		seen[pair], before = true, kind
	}
	return all
}

// kindsOf returns the kinds of frames. The two frames of a durable event have different kinds, and so have the states
// of a tool's call.
func kindsOf(frames [][]byte) (kinds []string) {
	for _, f := range frames {
		p := bridgetest.Parsed(f).Payload
		kinds = append(kinds, p.Type+p.SyncEvent.Type+string(stateOfCall.Find(f)))
	}
	return kinds
}

var stateOfCall = regexp.MustCompile(`"status":"[a-z]+"`)

func TestACutOfTheStreamLosesNoDurableEvent(t *testing.T) {
	frames := opencodetest.RecordedEvents(t, turn)[1:]
	for _, k := range cuts(t, kindsOf(frames)) {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			s, r := bridgetest.Connected(t)
			s.Happen(frames[:k]...)
			rest := min(k+missedFrames, len(frames))
			s.Reconnected(r, func() { s.AppendUnsent(frames[k:rest]...) })
			s.Happen(frames[rest:]...)
			s.Drained()
			checkDurable(t, s, frames)
			awaitAppendedOnce(s, r)
		})
	}
}

// awaitAppendedOnce waits until the bridges have appended as many events as the log holds. The log itself would drop a
// duplicate within two minutes.
func awaitAppendedOnce(s *bridgetest.System, bridges ...*bridgetest.Running) {
	s.T.Helper()
	last, err := s.Log.Last(s.T.Context())
	s.Must(err)
	expect.Eventually(s.T, "as many appended as stored", func() bool {
		var appended uint64
		for _, b := range bridges {
			appended += b.Ingest.Condition().Stored
		}
		return appended == last
	})
}

func TestARestartOfTheBridgeLosesNoDurableEvent(t *testing.T) {
	frames := opencodetest.RecordedEvents(t, turn)[1:]
	for i, k := range cuts(t, kindsOf(frames)) {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			s, r := bridgetest.Connected(t)
			s.Happen(frames[:k]...)
			if i%2 == 0 { // the others are stopped while they take the burst
				s.Drained()
			}
			r.Stop()
			rest := min(k+missedFrames, len(frames))
			s.AppendUnsent(frames[k:rest]...)
			restarted := s.Start().Connected()
			s.Happen(frames[rest:]...)
			s.Drained()
			checkDurable(t, s, frames)
			if i%2 == 0 {
				awaitAppendedOnce(s, r, restarted)
			}
		})
	}
}

func TestACutLosesNoSubagentsEvent(t *testing.T) {
	frames := opencodetest.RecordedEvents(t, "9i-perm-task")[1:]
	for _, k := range cuts(t, kindsOf(frames)) {
		if k < 3 {
			continue
		}
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := bridgetest.NewSystem(t)
			_, before := roots(s.OpenCode, frames)
			s.AppendUnsent(before...)
			r := s.Start().Connected()
			s.Happen(frames[:k]...)
			s.Reconnected(r, func() { s.AppendUnsent(frames[k:]...) })
			checkDurable(t, s, append(before, frames...))
			chats := map[string]bool{}
			for _, e := range s.Events(events.AllEvents) {
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
	s, _ := bridgetest.Connected(t)
	frames := opencodetest.RecordedEvents(t, turn)[1:]
	for _, f := range frames { // within one burst
		s.Happen(f)
		s.Say(f)
	}
	s.Drained()
	s.Say(frames...) // and later
	s.Drained()
	checkDurable(t, s, frames)
	is.Equal(len(s.Requests("GET", "/pocketcoder/history")), 2) // at the start: none of it looks like a gap
}

func TestAGapInTheStreamIsFilledFromTheHistory(t *testing.T) {
	frames := opencodetest.RecordedEvents(t, turn)[1:]
	var durable []int
	var kinds []string
	for i, kind := range kindsOf(frames) {
		if bridgetest.Parsed(frames[i]).Payload.Type == "sync" {
			durable, kinds = append(durable, i), append(kinds, kind)
		}
	}
	for _, i := range cuts(t, kinds[:len(kinds)-1]) { // after the last there is nothing to notice a gap by
		k := durable[i]
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s, r := bridgetest.Connected(t)
			s.Happen(frames[:k]...)
			s.AppendUnsent(frames[k])
			s.Happen(frames[k+1:]...)
			s.Drained()
			checkDurable(t, s, frames)
			is.Equal(len(s.Requests("GET", "/pocketcoder/history")), 3) // at the start, and for the gap
			expect.Contains(t, r.Logged.String(), "the live stream has a gap")
			is.Equal(len(s.Requests("GET", "/global/event")), 1) // the connection was kept
		})
	}
}

func TestAGapWithinABurstLosesNothingBeforeIt(t *testing.T) {
	frames := opencodetest.RecordedEvents(t, turn)[1:]
	var all []client.Event
	for _, f := range frames {
		if e, ok, _ := client.ParseEvent(f); ok {
			all = append(all, e)
		}
	}
	end := slices.IndexFunc(all, func(e client.Event) bool { return e.Seq == 26 }) // two before the last
	var kinds []string
	for _, e := range all[:end] {
		kinds = append(kinds, e.Type)
	}
	for _, k := range cuts(t, kinds) {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := bridgetest.NewSystem(t)
			s.AppendUnsent(frames...)
			b, _ := s.Outbox()
			b.Ingest.SetCurrent(client.New(s.URL, "secret"))
			in := b.Ingest
			is.NoErr(in.Take(t.Context(), all[:k]))
			next := k + 1 + slices.IndexFunc(all[k+1:], func(e client.Event) bool { return e.Seq > 0 })
			burst := slices.Delete(slices.Clone(all[k:]), next-k, next-k+1)
			err := in.Take(t.Context(), burst)
			is.True(errors.Is(err, ingest.ErrGap))
			is.NoErr(b.Ingest.FetchHistory(t.Context()))
			is.NoErr(in.Take(t.Context(), burst))
			checkDurable(t, s, frames)
		})
	}
}

// OpenCode encodes a message when it sends the event, so a short answer is over in its first event.
func TestAnAnswerThatEndsEarlyInTheStreamIsStoredAsItBegan(t *testing.T) {
	is := is.New(t)
	frames := opencodetest.RecordedEvents(t, turn)[1:]
	s, _ := bridgetest.Connected(t)
	s.AppendUnsent(frames...)
	begin := regexp.MustCompile(`("id": "(msg_\w+)", "parentID".*"time": \{"created": \d+)\}`)
	ended := map[string]int{} // frames by message
	for i, f := range frames {
		if m := begin.FindSubmatch(f); m != nil && ended[string(m[2])] < 2 { // an event has two frames
			frames[i] = begin.ReplaceAll(f, []byte(`$1, "completed": 1}`))
			ended[string(m[2])]++
		}
	}
	is.Equal(len(ended), 2) // answers
	s.Say(frames...)
	s.Drained()
	checkDurable(t, s, opencodetest.RecordedEvents(t, turn)[1:])
}

// A reply to a request is not durable, so the history lacks it. It stays before the answer that followed it.
func TestWhatComesBeforeAGapIsStoredBeforeTheHistory(t *testing.T) {
	is := is.New(t)
	frames := opencodetest.RecordedEvents(t, turn)[1:]
	var all []client.Event
	for _, f := range frames {
		if e, ok, _ := client.ParseEvent(f); ok {
			all = append(all, e)
		}
	}
	replied := slices.IndexFunc(all, func(e client.Event) bool { return e.Type == events.PermissionReplied })
	begins := replied + slices.IndexFunc(all[replied:], func(e client.Event) bool {
		return e.Type == "message.updated" && bytes.Contains(e.Properties, []byte(`"assistant"`)) &&
			!bytes.Contains(e.Properties, []byte(`"completed"`)) && !bytes.Contains(e.Properties, []byte(`"finish"`))
	})
	is.True(replied > 0 && begins > replied)
	s := bridgetest.NewSystem(t)
	s.AppendUnsent(frames...)
	b, _ := s.Outbox()
	b.Ingest.SetCurrent(client.New(s.URL, "secret"))
	is.NoErr(b.Ingest.TakeLive(t.Context(), all[:replied]))
	burst := slices.Clone(all[replied : begins+1])
	last := &burst[len(burst)-1]
	last.Properties = regexp.MustCompile(`("time": ?\{"created": ?\d+)\}`).ReplaceAll(last.Properties, []byte(`$1,"completed":1}`))
	is.NoErr(b.Ingest.TakeLive(t.Context(), burst))
	var reply, answer uint64
	for _, e := range s.Events(events.AllEvents) {
		switch {
		case e.ID == all[replied].ID:
			reply = e.Seq
		case e.ID == last.ID:
			answer = e.Seq
			is.True(!bytes.Contains(e.Data, []byte(`"completed"`)))
		}
	}
	is.True(reply > 0 && answer > reply)
}
