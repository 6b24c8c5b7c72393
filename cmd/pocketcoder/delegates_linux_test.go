package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// delegates are those of the tree of a chat.
func (p *process) delegates(t testing.TB, chat string) []projections.Delegate {
	t.Helper()
	all, err := p.Delegates(t.Context(), chat, 100)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// delegateReports are the messages of a chat that report on its delegates.
func (p *process) delegateReports(t *testing.T, chat string) (all []events.MessageSubmitted) {
	t.Helper()
	for _, e := range p.history(t, chat) {
		d, _ := events.Decode(e)
		if m, ok := d.(events.MessageSubmitted); ok && m.IsReport() {
			all = append(all, m)
		}
	}
	return all
}

// processRuns reports whether a process with these arguments runs on this machine.
func processRuns(args string) bool {
	entries, _ := os.ReadDir("/proc")
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		pid, err := strconv.Atoi(e.Name())
		return err == nil && alive(pid) && strings.Contains(strings.Join(procFile(pid, "cmdline"), "\x00"), args)
	})
}

// The example of docs/delegates.md, as a newcomer plays it.
func TestExampleOfTheDelegatesPage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, blocks(t, "delegates.md", "text")[0])
	expect.Eventually(t, "the chief has read both results", func() bool {
		return p.row(t, chat).Preview == "Both delegates are done."
	})
	p.turnEnds(t, chat)
	reports := p.delegateReports(t, chat) // of assign alone: handoff returned the other result
	is.Equal(len(reports), 1)
	expect.Contains(t, reports[0].Parts[0].Text, "The tests pass.")
	all := p.delegates(t, chat)
	is.Equal([]string{all[0].State, all[1].State}, []string{"completed", "completed"})
	out, _, code := p.cli(t, "", "delegates", chat)
	is.Equal(code, 0)
	expect.Contains(t, out, "The docs are complete.")
	out, _, _ = p.cli(t, "", "delegates", "check", all[1].ID)
	expect.Contains(t, out, "\nThe docs are complete.\n")
	out, _, _ = p.cli(t, "", "chats")
	expect.Lacks(t, out, all[1].ID)
	_, stderr, code := p.cli(t, "", "delegates", "stop", chat)
	is.Equal(code, 1)
	expect.Contains(t, stderr, "there is no delegate "+chat)
}
