package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/handlers/worker"
	"pocketcoder/projections/workers"
)

// assign is a step of a script that starts a worker with a script.
func assign(script string) string {
	return call("pocketcoder_assign", map[string]any{"message": script}) + "\n@@next\n"
}

// workers are those of the tree of a chat.
func (p *process) workers(t testing.TB, chat string) (all []workers.Worker) {
	t.Helper()
	last, err := p.Log.Last(t.Context())
	if err == nil {
		err = p.Query(t.Context(), "workers", map[string]any{"chat": chat, "after": last}, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// workerReports are the messages of a chat that report on its workers.
func (p *process) workerReports(t *testing.T, chat string) (all []events.MessageSubmitted) {
	t.Helper()
	for _, e := range p.history(t, chat) {
		d, _ := events.Decode(e)
		if m, ok := d.(events.MessageSubmitted); ok && m.IsReport() {
			all = append(all, m)
		}
	}
	return all
}

func TestWorkersReportToTheirIdleParent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	parent := p.chat(t, assign("@@say quick result")+
		assign(strings.Replace(bash("echo worked"), "say done", "say asked result", 1))+
		"@@say hello\n@@next\n@@say I read one\n@@next\n@@say I read two")
	p.turnEnds(t, parent)
	all := p.workersOf(t, parent, 2)
	quick, waiting := all[0].ID, all[1].ID
	p.awaitRequestOfPerson(t, waiting, 0)
	expect.Eventually(t, "the first result is reported", func() bool { return len(p.workerReports(t, parent)) == 1 })
	all = p.workers(t, parent)
	is.Equal([]string{all[0].ID, all[0].State, all[0].Line}, []string{quick, "completed", "quick result"})
	is.Equal([]string{all[1].ID, all[1].State}, []string{waiting, "waiting"})
	is.Equal(all[1].Pending, int64(1))

	out, _, _ := p.cli(t, "", "chat", parent)
	expect.Contains(t, out, "waits for you; decide with: pocketcoder chat "+waiting)

	p.decide(t, waiting, p.awaitRequest(t, waiting, 0), events.Authorized, "")
	expect.Eventually(t, "the second result is reported", func() bool { return len(p.workerReports(t, parent)) == 2 })
	p.turnEnds(t, parent)
	reports := p.workerReports(t, parent)
	expect.Contains(t, reports[0].Parts[0].Text, "quick result")
	expect.Contains(t, reports[1].Parts[0].Text, "asked result")
	is.Equal(p.workers(t, waiting), p.workers(t, parent)) // the tree, whichever of its chats is named
	is.Equal(p.row(t, parent).Preview, "I read two")      // the model was asked about both
}

// A worker that was stopped leaves no process.
func TestStoppedWorkerChatEndsItsProcesses(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	parent := p.chat(t, assign(bash("trap '' TERM; sleep 3456 & wait"))+"@@say hello")
	p.turnEnds(t, parent)
	id := p.workersOf(t, parent, 1)[0].ID
	request := p.awaitRequestOfPerson(t, id, 0)
	p.decide(t, id, request, events.Authorized, "")
	p.event(t, id, "exec.requested", nil)
	expect.Eventually(t, "the command runs", func() bool { return processRuns("sleep\x003456") })
	is.NoErr(p.Do(t.Context(), "worker.stop", worker.Stop{Worker: id}))
	expect.Eventually(t, "no process of it is left", func() bool { return !processRuns("sleep\x003456") })
	expect.Eventually(t, "the parent knows", func() bool { return len(p.workerReports(t, parent)) == 1 })
	expect.Contains(t, p.workerReports(t, parent)[0].Parts[0].Text, "The worker was stopped.")
	is.Equal(p.workers(t, parent)[0].State, "aborted")
}

// processRuns reports whether a process with these arguments runs on this machine.
func processRuns(args string) bool {
	entries, _ := os.ReadDir("/proc")
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		pid, err := strconv.Atoi(e.Name())
		return err == nil && alive(pid) && strings.Contains(strings.Join(procFile(pid, "cmdline"), "\x00"), args)
	})
}

// The example of docs/workers.md, as a newcomer plays it.
func TestExampleOfTheWorkersPage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, blocks(t, "workers.md", "text")[0])
	expect.Eventually(t, "the chief has read both results", func() bool {
		return p.row(t, chat).Preview == "Both workers are done."
	})
	p.turnEnds(t, chat)
	reports := p.workerReports(t, chat) // of assign alone: handoff returned the other result
	is.Equal(len(reports), 1)
	expect.Contains(t, reports[0].Parts[0].Text, "The tests pass.")
	all := p.workers(t, chat)
	is.Equal([]string{all[0].State, all[1].State}, []string{"completed", "completed"})
	out, _, code := p.cli(t, "", "workers", chat)
	is.Equal(code, 0)
	expect.Contains(t, out, "The docs are complete.")
	out, _, _ = p.cli(t, "", "workers", "check", all[1].ID)
	expect.Contains(t, out, "\nThe docs are complete.\n")
	out, _, _ = p.cli(t, "", "chats")
	expect.Lacks(t, out, all[1].ID)
	_, stderr, code := p.cli(t, "", "workers", "stop", chat)
	is.Equal(code, 1)
	expect.Contains(t, stderr, "there is no worker "+chat)
}
