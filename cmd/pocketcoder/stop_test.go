//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/expect"
	"pocketcoder/ops/natsconf"
	"pocketcoder/projections"
	"pocketcoder/projections/executions"
)

// stopTimeLimit is how long a stop may take, whatever runs: 10 s on an idle machine, and more on a busy one. The
// commands that run would go on for five minutes.
const stopTimeLimit = time.Minute

func TestNextStartContinuesAfterAStop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := prepare(t, t.TempDir(), "--offload-dir", dir, "--offload-after", "1ms", "--allow", "bash: touch made")
	prepareForEverybody(t, p)
	p.runForTest()
	archived := func(t *testing.T, p *process) (after func(*testing.T, *process)) {
		return outputsOfArchivedChatsAreMoved(t, p, dir)
	}
	runStages(t, p, stage{"the data directory is for its owner alone", dataIsForItsOwnerAlone},
		stage{"Ctrl-C leaves nothing behind", stopLeavesNothing},
		stage{"a damaged read model is set aside, and what was lost is named", func(t *testing.T, p *process) {
			causeAndCheck(t, p, damagedReadModel, incidentCheck{"outputs of archived chats are moved", archived},
				incidentCheck{"what a shell has changed is known", shellChangesAreKnown})
		}})
}

func stopLeavesNothing(t *testing.T, p *process) {
	is := is.New(t)
	path := filepath.Join(p.workspace, "stop.pids")
	working := p.chat(t, bash("trap '' TERM INT; sleep 300 & echo $$ > "+path+"; echo $! >> "+path+"; wait; sleep 300"))
	p.approve(t, working, 0)
	waiting, talking := p.threeCallsWait(t), p.chat(t, "@@text n=10000 delay=20")
	pids := pidsIn(t, path, 2)
	expect.Eventually(t, "a text is streamed", func() bool {
		return len(p.fragments(t, events.PartDeltaSubject(talking))) > 5
	})
	_, engine := p.engine(t)
	left := p.leftover(t)
	for _, pid := range append(pids, engine) {
		is.True(left[pid] != "") // the test would notice it
	}
	seen := p.allEvents(t)
	requested := time.Now()
	is.NoErr(p.cmd.Process.Signal(syscall.SIGINT))
	<-p.exited
	is.True(time.Since(requested) < stopTimeLimit)
	for pid, args := range left {
		if alive(pid) {
			t.Errorf("left behind: %d %s", pid, args)
		}
	}
	is.Equal(p.cmd.ProcessState.ExitCode(), 0)
	p.Close()
	_, err := p.data.Running()
	is.True(errors.Is(err, datadir.ErrNotRunning))

	p.restart()
	checkNothingRemoved(t, p.allEvents(t), seen)
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
	p.check(t, seen)
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

func damagedReadModel(t *testing.T, p *process) {
	is := is.New(t)
	chat := p.chat(t, bash("echo kept"))
	p.approve(t, chat, 0)
	p.turnEnds(t, chat)
	answers, runs := rows[projections.ShownMessage](t, p, "messages", chat)[1:],
		rows[executions.Run](t, p, "executions", chat)
	damaged, lost := p.loseBody(t)
	p.stop()
	files, err := filepath.Glob(filepath.Join(p.data.ReadModels(), "readmodel.v*.db"))
	is.NoErr(err)
	is.Equal(len(files), 1)
	is.NoErr(os.WriteFile(files[0], []byte(strings.Repeat("no database ", 1000)), 0o600))

	conditions, before := make(chan []condition, 1), p.cmd.Process.Pid
	go func() { conditions <- watchHealth(p.data, before) }()
	p.restart()
	expect.Contains(t, p.output.String(), ".corrupt-1") // it says where the old one is
	is.Equal(rows[projections.ShownMessage](t, p, "messages", chat)[1:], answers)
	is.Equal(rows[executions.Run](t, p, "executions", chat), runs)
	stdout, _, code := p.cli(t, "", "rebuild")
	is.Equal(code, 0)
	expect.Contains(t, stdout, "the read models are the same")

	stdout, _, code = p.cli(t, "", "doctor")
	is.Equal(code, 1)
	expect.Contains(t, stdout, " cannot be read or applied\n")
	expect.Contains(t, stdout, lost)
	is.Equal(p.health(t).states["read_model"], "degraded")
	stdout, _, code = p.cli(t, "", "replay", damaged)
	is.Equal(code, 0)
	expect.Contains(t, stdout, "cannot be read: "+lost)
	p.submit(t, chat, "@@say not stopped by it")
	p.turnEnds(t, chat)

	all := <-conditions
	is.True(len(all) > 1)
	first, last := all[0], all[len(all)-1]
	is.Equal(first.code, 503) // before every part is ready
	is.Equal(last.code, 200)
	is.Equal(slices.Sorted(maps.Keys(first.states)), slices.Sorted(maps.Keys(last.states))) // the same body
	is.Equal(slices.Sorted(maps.Keys(last.states)), []string{"consumers", "data", "log", "opencode", "read_model",
		"sandbox"})
}

// loseBody stores an event with a body in BLOBS, removes the body as a damaged disk does, and returns what readers say
// of the event.
func (p *process) loseBody(t *testing.T) (chat, want string) {
	t.Helper()
	is := is.New(t)
	chat = p.create(t, "loses a body")
	p.submit(t, chat, "@@say short\n"+strings.Repeat("x", log.MaxInline))
	p.turnEnds(t, chat)
	keys, err := natsconf.LoadKeys(p.data.Path("keys"))
	is.NoErr(err)
	opts, err := keys.Options(natsconf.Core, "test")
	is.NoErr(err)
	nc, err := nats.Connect(p.NATS, opts...)
	is.NoErr(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	is.NoErr(err)
	stream, err := js.Stream(t.Context(), "EVENTS")
	is.NoErr(err)
	event, err := stream.GetLastMsgForSubject(t.Context(), events.ChatSubject(chat, "message.submitted"))
	is.NoErr(err)
	var body events.Blob
	is.NoErr(json.Unmarshal(event.Data, &body))
	blobs, err := js.ObjectStore(t.Context(), "BLOBS")
	is.NoErr(err)
	is.NoErr(blobs.Delete(t.Context(), body.Name))
	return chat, fmt.Sprintf("read #%d %s: open blob %s: no such blob", event.Sequence, event.Subject, body.Name)
}
