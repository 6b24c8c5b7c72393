package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/opencodetest"
	"pocketcoder/cmd/client"
	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/handlers"
	chats "pocketcoder/handlers/chat"
	"pocketcoder/projections/executions"
)

// stage is one part of a test whose parts share a system.
type stage struct {
	name string
	test func(*testing.T, *process)
}

// runStages takes one system through several stages, one after the other, because each start of OpenCode takes seconds.
func runStages(t *testing.T, p *process, all ...stage) {
	t.Helper()
	for _, s := range all {
		if !t.Run(s.name, func(t *testing.T) { p.t = t; s.test(t, p) }) {
			break // the system may be unusable for the other stages
		}
	}
	p.t = t
}

func TestDeadPartIsReplacedWithoutLoss(t *testing.T) {
	t.Parallel()
	p := startWithSlowOpenCode(t)
	var seen []events.Event
	var calls callsThatWait
	runStages(t, p, stage{"OpenCode that cannot start at once is started again", openCodeStartsAgain},
		stage{"OpenCode dies", func(t *testing.T, p *process) {
			causeAndCheck(t, p, killOpenCode, incidentCheck{"what it ran is lost, and continues", lostTurnsContinue},
				healthcheckFollows("opencode"),
				incidentCheck{"a file that changed while OpenCode was away is shown again", fileChangedMeanwhileIsShown},
				incidentCheck{"a detached server lives on", detachedServerLivesOn},
				incidentCheck{"calls that wait survive", calls.surviveIncident},
				incidentCheck{"an interrupted question ends", interruptedQuestionEnds})
			seen = p.allEvents(t)
		}},
		stage{"the worker dies", func(t *testing.T, p *process) {
			causeAndCheck(t, p, workerDies, healthcheckFollows("sandbox"))
			p.check(t, seen) // above all, the log lacks nothing that OpenCode has
		}})
}

// incidentCheck is a check of what an incident leaves. prepare runs before the incident and returns the check.
type incidentCheck struct {
	name    string
	prepare func(*testing.T, *process) (check func(*testing.T, *process))
}

// causeAndCheck causes an incident, such as the death of a part of the system, and carries out the checks.
func causeAndCheck(t *testing.T, p *process, cause func(*testing.T, *process), all ...incidentCheck) {
	t.Helper()
	checks := make([]func(*testing.T, *process), len(all))
	for i, c := range all {
		checks[i] = c.prepare(t, p)
	}
	cause(t, p)
	for i, c := range all {
		if !t.Run(c.name, func(t *testing.T) { p.t = t; checks[i](t, p) }) {
			break
		}
	}
	p.t = t
}

func killDuringStart(t *testing.T, p *process) {
	is := is.New(t)
	chat := p.create(t, "started")
	p.submit(t, chat, bash(fmt.Sprintf(shortCommand, "started")))
	p.awaitRequest(t, chat, 0)
	waiting := p.chat(t, "@@say never lost")
	seen := p.allEvents(t)
	p.kill()

	var left []processes
	for _, reached := range []func() bool{
		func() bool { return strings.Contains(p.output.String(), "NATS at") },
		func() bool { r, err := p.data.Running(); return err == nil && r.PID == p.cmd.Process.Pid },
		func() bool { return p.newEngine(t) },
		func() bool { return p.interrupted(t, chat) },
	} {
		left = append(left, p.leftover(t))
		p.startProcess()
		expect.Eventually(t, "the start has come so far", reached)
		p.kill()
	}
	left = append(left, p.leftover(t))
	p.restart()
	for _, l := range left {
		l.awaitEnd(t)
	}
	p.finishAfterCrash(t, chat)
	resumedByApproval(t, p, chat)
	p.finishAfterCrash(t, waiting)
	is.Equal(p.text(t, waiting), "never lost")
	p.check(t, seen)
}

// newEngine reports whether the starting program has started OpenCode.
func (p *process) newEngine(t *testing.T) bool {
	for pid, args := range p.leftover(t) {
		parent := ""
		for _, line := range strings.Split(strings.Join(procFile(pid, "status"), ""), "\n") {
			if value, ok := strings.CutPrefix(line, "PPid:\t"); ok {
				parent = value
			}
		}
		if strings.Contains(args, "opencode serve") && parent == fmt.Sprint(p.cmd.Process.Pid) {
			return true
		}
	}
	return false
}

// interrupted reports whether the starting program has found that OpenCode forgot a request of a chat.
func (p *process) interrupted(t *testing.T, chat string) bool {
	r, err := p.data.Running()
	if err != nil || r.PID != p.cmd.Process.Pid {
		return false
	}
	s, err := client.Connect(t.Context(), p.data)
	if err != nil {
		return false
	}
	defer s.Close()
	found := false
	_, err = s.Log.Fold(t.Context(), events.ChatSubject(chat, "permission.interrupted"), 0, func(events.Event) error {
		found = true
		return nil
	})
	return err == nil && found
}

// repeatedMessages are messages that a client submits right before crashes, and again afterwards.
type repeatedMessages struct {
	*process
	chat      string
	seqs      []uint64 // at which they were accepted
	whileDown func()   // called between the kill and the start; may be nil
}

func (m *repeatedMessages) send(t *testing.T, i int) uint64 {
	t.Helper()
	accepted, err := handlers.Send(t.Context(), m.Conn, "message.submit", chats.SubmitMessage{
		Chat: m.chat, Message: fmt.Sprintf("message-%d", i), Parts: []events.Part{{Type: "text", Text: fmt.Sprintf("@@say answer %d", i)}},
	})
	is.New(t).NoErr(err)
	return accepted.Seq
}

// crash submits two messages, kills the system and starts it again. A client without an answer sends each message
// again.
func (m *repeatedMessages) crash(t *testing.T, kill func()) {
	t.Helper()
	for range 2 {
		m.seqs = append(m.seqs, m.send(t, len(m.seqs)))
	}
	kill()
	if m.whileDown != nil {
		m.whileDown()
	}
	m.restart()
	for i, seq := range m.seqs {
		is.New(t).Equal(m.send(t, i), seq)
	}
}

// checkAnswered checks that each message was answered or reported as lost.
func (m *repeatedMessages) checkAnswered(t *testing.T) {
	is := is.New(t)
	m.turnEnds(t, m.chat)
	answers, lost := strings.Count(m.text(t, m.chat), "answer"), len(m.lostTurns(t, m.chat))
	is.True(answers <= len(m.seqs) && answers+lost >= len(m.seqs)) // a turn that had begun may be lost and reported so
	m.checkChatAnswers(t, m.chat)
	m.check(t, nil)
}

func workerDies(t *testing.T, p *process) {
	is := is.New(t)
	pids := filepath.Join(p.workspace, "pids")
	chat := p.chat(t, call("bash", map[string]any{"command": "echo $$ >>pids; sleep 300 & echo $! >>pids; wait",
		"description": "test"})+
		"\n@@next\n"+bash("echo back"))
	p.approve(t, chat, 0)
	ran := pidsIn(t, pids, 2)
	worker := p.worker(t)
	is.NoErr(syscall.Kill(worker, syscall.SIGKILL))

	is.Equal(p.finished(t, chat, 0).Reason, "lost")
	p.approve(t, chat, 1) // the model was informed and continues
	f := p.finished(t, chat, 1)
	is.Equal(f.Reason, "")
	is.Equal(f.Stdout.Text, "back\n")
	p.turnEnds(t, chat)
	is.True(p.worker(t) != worker)
	for _, pid := range ran {
		expect.Eventually(t, "the lost command is gone", func() bool { return !alive(pid) })
	}
	is.Equal(len(rows[executions.Run](t, p, "executions", chat)), 2)
	body, err := os.ReadFile(pids)
	is.NoErr(err)
	is.Equal(strings.Count(string(body), "\n"), 2) // it did not run again
}

// worker is the pid of the sandbox worker of a system.
func (p *process) worker(t *testing.T) (worker int) {
	t.Helper()
	expect.Eventually(t, "a worker is ready", func() bool {
		for pid, args := range p.leftover(t) {
			if strings.Contains(args, "pocketcoder worker --lifeline") {
				worker = pid
				return p.health(t).code == 200
			}
		}
		return false
	})
	return worker
}

// startWithSlowOpenCode starts a system whose OpenCode fails at its first start. The number of running turns is not
// limited, because many of them wait.
func startWithSlowOpenCode(t *testing.T) *process {
	t.Helper()
	tools, dir := opencodetest.Tools(t), t.TempDir()
	path := filepath.Join(dir, "opencode")
	script := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = serve ] && ! [ -e \"$HOME/tried\" ]; then touch \"$HOME/tried\"; exit 1; fi\nexec %s \"$@\"\n", tools.OpenCode)
	expect.WriteFile(t, path, script)
	return start(t, "--opencode", path, "--expose", filepath.Dir(tools.OpenCode), "--max-turns", "0")
}

func openCodeStartsAgain(t *testing.T, p *process) {
	is := is.New(t)
	_, err := os.Stat(p.data.Path("opencode", "home", "tried"))
	is.NoErr(err) // it failed once, as it does when another program takes its port
	chat := p.chat(t, "@@say here")
	p.turnEnds(t, chat)
	is.Equal(p.text(t, chat), "here")
}
