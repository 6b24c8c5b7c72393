package main

import (
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/expect"
)

// twoWorkers delegates to two workers and reads their results as they come.
var twoWorkers = call("pocketcoder_assign", map[string]any{"agent_profile": "", "message": "@@say result one"}) + "\n" +
	call("pocketcoder_assign", map[string]any{"agent_profile": "", "message": "@@text n=5 delay=20"}) +
	"\n@@next\n@@say delegated\n@@next\n@@say read\n@@next\n@@say read again"

// killAfter are numbers of events after which everything is killed. The chats are elsewhere at each.
var killAfter = []int{40, 100, 160}

// Whenever everything is killed, each worker has one result, and its parent gets it once.
func TestKillLosesAndRepeatsNoResultOfAWorker(t *testing.T) {
	t.Parallel()
	p := start(t)
	var seen []events.Event
	for i, n := range killAfter {
		chats := []string{p.create(t, fmt.Sprint("first ", i)), p.create(t, fmt.Sprint("second ", i))}
		last, err := p.Log.Last(t.Context())
		is.New(t).NoErr(err)
		for _, chat := range chats {
			p.submit(t, chat, twoWorkers)
		}
		p.afterEvents(t, last, n)
		seen = p.all(t)
		p.kill()
		p.restart()
		for _, chat := range chats {
			expect.Eventually(t, "the workers of chat "+chat+" are done", func() bool { return p.workersAreDone(t, chat) })
		}
	}
	p.check(t, seen)
	p.checkWorkers(t)
}

// afterEvents waits until n events are in the log after a sequence.
func (p *process) afterEvents(t *testing.T, last uint64, n int) {
	t.Helper()
	err := p.Log.Read(t.Context(), last, nil, func(b log.Batch) error {
		if n -= len(b.Events); n <= 0 {
			return events.ErrStop
		}
		return nil
	})
	is.New(t).NoErr(err)
}

// workersAreDone reports whether nothing runs in the tree of a chat, and nothing is to be reported.
func (p *process) workersAreDone(t *testing.T, chat string) bool {
	if p.row(t, chat).Turn != "user" {
		return false
	}
	carried := map[string]bool{}
	for _, m := range p.workerReports(t, chat) {
		for _, id := range m.Results {
			carried[id] = true
		}
	}
	for _, w := range p.workers(t, chat) {
		if w.Result == "" || !carried[w.Message] || p.row(t, w.ID).Turn != "user" {
			return false
		}
	}
	return true
}

// checkWorkers says that each call started one worker, that each worker has one result, and that its parent got the
// result once.
func (p *process) checkWorkers(t *testing.T) {
	t.Helper()
	is := is.New(t)
	calls, results, carried := map[string]int{}, map[string]int{}, map[string]int{}
	for _, e := range p.all(t) {
		switch d, _ := events.Decode(e); d := d.(type) {
		case events.ChatCreated:
			if d.Parent != nil {
				calls[d.Parent.Session+d.Parent.Call]++
			}
		case events.WorkerFinished:
			results[d.Message]++
		case events.MessageSubmitted:
			for _, id := range d.Results {
				carried[id]++
			}
		}
	}
	is.True(len(calls) > 0)
	is.Equal(len(results), len(calls))
	for _, count := range []map[string]int{calls, results, carried} {
		for id, n := range count {
			is.Equal([]any{id, n}, []any{id, 1})
		}
	}
}
