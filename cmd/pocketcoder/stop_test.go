//go:build linux

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
)

// What a start does after a stop in order, and what it does with another model, are checked on one system.
func TestNextStartContinuesAfterAStop(t *testing.T) {
	expect.Long(t, "has many stages, and starts the system again")
	t.Parallel()
	archive := t.TempDir()
	p := prepare(t, t.TempDir(), "--offload-dir", archive, "--offload-after", "1ms", "--allow", "bash: touch made",
		"--max-turns", "0")
	prepareForEverybody(t, p)
	p.runForTest()
	var key atomic.Value
	key.Store(foreignKey)
	server, certificate := foreignTLS(t, func() string { return key.Load().(string) })
	var calls callsThatWait
	runStages(t, p, stage{"the data directory is for its owner alone", dataIsForItsOwnerAlone},
		stage{"a stop leaves nothing behind", func(t *testing.T, p *process) {
			seen := p.allEvents(t)
			causeAndCheck(t, p, func(t *testing.T, p *process) {
				stopLeavesNothing(t, p)
				p.useModelOf(server, certificate)
				p.restart()
			}, incidentCheck{"outputs of archived chats are moved", func(t *testing.T, p *process) func(*testing.T, *process) {
				return outputsOfArchivedChatsAreMoved(t, p, archive)
			}}, incidentCheck{"what a shell has changed is known", shellChangesAreKnown},
				incidentCheck{"calls that wait survive", calls.surviveIncident},
				incidentCheck{"what ran is lost, and what waited goes on", whatRanIsLost},
				incidentCheck{"an old chat uses the model of now", func(t *testing.T, p *process) func(*testing.T, *process) {
					return oldChatUsesTheNewModel(t, p, server)
				}})
			p.check(t, seen)
		}},
		stage{"a patch of a file that changed while it waited is not applied", patchOfAChangedFileIsNotApplied},
		stage{"a stored key replaces a refused key", func(t *testing.T, p *process) {
			storedKeyReplacesARefusedKey(t, p, func() { key.Store(replacedKey) })
			key.Store(foreignKey) // the stage deletes the stored key, so this key counts again
		}},
		stage{"nothing is resumed again", func(t *testing.T, p *process) { calls.half.checkNotResumedAgain(t, p) }})
}

// stopLeavesNothing stops a system as Ctrl-C does.
func stopLeavesNothing(t *testing.T, p *process) {
	is := is.New(t)
	left := p.leftover(t)
	is.True(len(left) > 5) // OpenCode, the worker and the commands: the test would notice them
	is.NoErr(p.cmd.Process.Signal(syscall.SIGINT))
	select {
	case <-p.exited:
	case <-time.After(4 * time.Minute): // the commands that run would go on for five minutes
		t.Fatal("the system does not stop")
	}
	for pid, args := range left {
		if alive(pid) && !strings.Contains(args, "sandbox shell") { // which is a person's terminal, and ends by itself
			t.Errorf("left behind: %d %s", pid, args)
		}
	}
	is.Equal(p.cmd.ProcessState.ExitCode(), 0)
	p.Close()
	_, err := p.data.Running()
	is.True(errors.Is(err, datadir.ErrNotRunning))
}

// whatRanIsLost has a command run that ignores signals, a text be streamed and three calls wait.
func whatRanIsLost(t *testing.T, p *process) (check func(*testing.T, *process)) {
	path := filepath.Join(p.workspace, "stop.pids")
	working := p.chat(t, bash("trap '' TERM INT; sleep 300 & echo $$ > "+path+"; echo $! >> "+path+"; wait; sleep 300"))
	p.approve(t, working, 0)
	waiting, talking := p.threeCallsWait(t), p.chat(t, longText)
	left := p.leftover(t)
	for _, pid := range pidsIn(t, path, 2) {
		is.New(t).True(left[pid] != "") // stopLeavesNothing would notice it
	}
	expect.Eventually(t, "a text is streamed", func() bool {
		return len(p.fragments(t, events.PartDeltaSubject(talking))) > 5
	})
	return func(t *testing.T, p *process) {
		is := is.New(t)
		p.threeCallsRun(t, waiting)
		is.Equal(p.finished(t, working, 0).Reason, "cancelled") // it was recorded on the way down
		for _, chat := range []string{working, talking} {
			p.turnEnds(t, chat)
			turnIsLost(t, p, chat)
		}
		is.True(strings.HasPrefix(p.text(t, talking), "t0 t1 t2 t3 t4 ")) // the text so far stays
		p.submit(t, working, "@@say again")
		p.turnEnds(t, working)
		is.Equal(p.text(t, working), "again")
	}
}

// threeCallsWait starts a chat in which an answer calls three commands at once. A person must approve each of them.
func (p *process) threeCallsWait(t *testing.T) (chat string) {
	t.Helper()
	var calls []string
	for n := range 3 {
		command := fmt.Sprintf("echo ran >>stopped-%d", n)
		calls = append(calls, call("bash", map[string]any{"command": command, "description": "test"}))
	}
	chat = p.chat(t, strings.Join(calls, "\n")+"\n@@next\n@@say done")
	p.awaitRequest(t, chat, 2)
	return chat
}

// threeCallsRun approves the calls of threeCallsWait after a stop, and checks that each command runs once and that
// nothing says that a person rejected it.
func (p *process) threeCallsRun(t *testing.T, chat string) {
	t.Helper()
	is := is.New(t)
	p.finishAfterCrash(t, chat)
	for n := range 3 {
		is.Equal(p.timesRun(t, fmt.Sprintf("stopped-%d", n)), 1)
	}
	is.True(strings.HasPrefix(p.text(t, chat), "done"))
	for _, e := range p.history(t, chat) {
		expect.Lacks(t, string(e.Data), "The user rejected")
	}
}
