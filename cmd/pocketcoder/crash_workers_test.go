package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/expect"
)

// twoWorkers delegates to two workers, first with assign and then with handoff, and reads the results.
var twoWorkers = call("pocketcoder_assign", map[string]any{"agent_profile": "", "message": "@@say result one"}) +
	"\n@@next\n" + call("pocketcoder_handoff", map[string]any{"agent_profile": "", "message": "@@text n=40 delay=20"}) +
	"\n@@next\n@@say delegated\n@@next\n@@say read\n@@next\n@@say read again"

// workerMoment is an event of a chief or of one of its workers. The kill comes later.
type workerMoment struct {
	worker int // in the order in which they were started; -1 for the chief
	kind   string
	holds  string // a text that the event holds
}

// workerPlays are the moments that chiefs and workers reach right before kills.
var workerPlays = [][]workerMoment{
	{{0, "message.submitted", ""}, {1, "message.delivered", ""}},                                    // in a handoff
	{{-1, "message.submitted", `"results"`}, {1, "opencode.message.part.updated", `"type":"text"`}}, // in a handoff
	{{1, "worker.finished", ""}, {-1, "opencode.message.part.updated", `result_id`}},
}

// playWorkers has chiefs delegate, one after the other, until each has reached its moment.
func (p *process) playWorkers(t *testing.T, moments []workerMoment) (chiefs []string) {
	t.Helper()
	last, err := p.Log.Last(t.Context())
	is.New(t).NoErr(err)
	for _, m := range moments {
		chiefs = append(chiefs, p.create(t, "delegates"))
		p.submit(t, chiefs[len(chiefs)-1], twoWorkers)
		p.reaches(t, last, chiefs[len(chiefs)-1], m)
	}
	return chiefs
}

// awaitWorkersDone waits until nothing is left to do in the trees of chats.
func (p *process) awaitWorkersDone(t *testing.T, chiefs []string) {
	t.Helper()
	for _, chat := range chiefs {
		expect.Eventually(t, "the workers of chat "+chat+" are done", func() bool { return p.workersAreDone(t, chat) })
	}
}

// reaches waits until a chief that began after a sequence reaches a moment.
func (p *process) reaches(t *testing.T, after uint64, chief string, m workerMoment) {
	t.Helper()
	chats := map[string]int{chief: -1}
	err := p.Log.Read(t.Context(), after, nil, func(b log.Batch) error {
		for _, e := range b.Events {
			d, _ := events.Decode(e)
			if c, ok := d.(events.ChatCreated); ok && c.Parent != nil && c.Parent.Chat == chief {
				chats[e.Subject.ID] = len(chats) - 1
			}
			worker, isOurs := chats[e.Subject.ID]
			if isOurs && worker == m.worker && e.Subject.Kind == m.kind && strings.Contains(string(e.Data), m.holds) {
				return events.ErrStop
			}
		}
		return nil
	})
	is.New(t).NoErr(err)
}

// workersAreDone reports whether nothing runs in the tree of a chat, and nothing is to be reported.
func (p *process) workersAreDone(t *testing.T, chat string) bool {
	reached := resultsReached(p.history(t, chat))
	for _, w := range p.workers(t, chat) {
		if w.Result == "" || reached[w.Message] == 0 || p.row(t, w.ID).Turn != "user" {
			return false
		}
	}
	return p.row(t, chat).Turn == "user" // now, because the last result may have begun a turn
}

// resultsReached counts by delegated message how often its result reached a chief: in a message, or as the output of a
// call.
func resultsReached(all []events.Event) map[string]int {
	count := map[string]int{}
	for _, e := range all {
		d, _ := events.Decode(e)
		if m, ok := d.(events.MessageSubmitted); ok {
			for _, id := range m.Results {
				count[id]++
			}
		}
		if e.Subject.Kind != "opencode.message.part.updated" {
			continue
		}
		var b struct {
			Part struct{ State struct{ Output string } }
		}
		_ = json.Unmarshal(e.Data, &b)
		for _, r := range events.ReceiptsIn(b.Part.State.Output) {
			count[r.Message]++
		}
	}
	return count
}

// checkWorkers checks that each call started one worker, that each worker has one result, and that its parent got the
// result once.
func (p *process) checkWorkers(t *testing.T) {
	t.Helper()
	is := is.New(t)
	all := p.allEvents(t)
	calls, results, reached := map[string]int{}, map[string]int{}, resultsReached(all)
	for _, e := range all {
		switch d, _ := events.Decode(e); d := d.(type) {
		case events.ChatCreated:
			if d.Parent != nil {
				calls[d.Parent.Session+d.Parent.Call]++
			}
		case events.WorkerFinished:
			results[d.Message]++
		}
	}
	is.True(len(calls) > len(slices.Concat(workerPlays...))) // each chief calls one or two
	is.Equal(len(results), len(calls))
	is.Equal(len(reached), len(calls))
	for _, count := range []map[string]int{calls, results, reached} {
		for id, n := range count {
			is.Equal([]any{id, n}, []any{id, 1})
		}
	}
}
