package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
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

// long is a stage's test that takes so long that it is left out unless CI is set. what says why.
func long(what string, test func(*testing.T, *process)) func(*testing.T, *process) {
	return func(t *testing.T, p *process) {
		t.Helper()
		expect.Long(t, what)
		test(t, p)
	}
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

	isAnnounced := func() bool { r, err := p.data.Running(); return err == nil && r.PID == p.cmd.Process.Pid }
	var left []processes
	for _, moment := range []struct {
		name     string
		ordinary bool // it is one of the moments without -kill.all
		reached  func() bool
	}{
		{"NATS serves", true, func() bool { return strings.Contains(p.output.String(), "NATS at") }},
		{"the system is announced", false, isAnnounced},
		{"OpenCode is started", false, func() bool { return p.newEngine(t) }},
		{"the turn is found lost", true, func() bool { return isAnnounced() && p.interrupted(t, chat) }},
	} {
		if !moment.ordinary && !*killAll {
			continue
		}
		left = append(left, p.leftover(t))
		p.startProcess()
		expect.Eventually(t, moment.name, moment.reached)
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
	is.True(p.text(t, waiting) == "never lost" || len(p.lostTurns(t, waiting)) == 1) // a start that was killed began it
	checkNothingRemoved(t, p.allEvents(t), seen)
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

// interrupted reports whether the starting program, which is announced, has found that OpenCode forgot a request of a
// chat.
func (p *process) interrupted(t *testing.T, chat string) bool {
	s := process{data: p.data}
	if s.readLog() != nil {
		return false
	}
	defer s.Conn.Close()
	found := false
	_, err := s.Log.Fold(t.Context(), events.ChatSubject(chat, "permission.interrupted"), 0, func(events.Event) error {
		found = true
		return nil
	})
	return err == nil && found
}

// repeatedMessages are messages that a client submits right before a crash, and again afterwards.
type repeatedMessages struct {
	*process
	chat string
	seqs []uint64 // at which they were accepted
}

func (m *repeatedMessages) send(t *testing.T, i int) uint64 {
	t.Helper()
	id := fmt.Sprintf("message-%d", i)
	_, err := m.Create(t.Context(), "messages", messageOf(m.chat, id, fmt.Sprintf("@@say answer %d", i)))
	is.New(t).NoErr(err)
	seq := uint64(0)
	submitted := events.ChatSubject(m.chat, events.MessageSubmitted{}.Kind())
	_, err = m.Log.Fold(t.Context(), submitted, 0, func(e events.Event) error {
		if d, _ := events.Decode(e); d.(events.MessageSubmitted).Message == id {
			seq = e.Seq
		}
		return nil
	})
	is.New(t).NoErr(err)
	return seq
}

// with returns crashes whose last chat begins with two messages of the client.
func (m *repeatedMessages) with(all []crash) []crash {
	all = slices.Clone(all)
	last := &all[len(all)-1]
	moment := last.moment
	last.moment = func(t *testing.T, p *process, e events.Event) bool {
		reached := moment(t, p, e)
		if e.Subject.Kind == (events.ChatCreated{}).Kind() {
			m.seqs = []uint64{m.send(t, 0), m.send(t, 1)}
		}
		return reached
	}
	return all
}

// surviveIncident checks the messages that were submitted right before the incident. A client without an answer sends
// each of them again. Each is answered or reported as lost.
func (m *repeatedMessages) surviveIncident(t *testing.T, p *process) (check func(*testing.T, *process)) {
	m.chat = p.create(t, "repeated")
	return func(t *testing.T, p *process) {
		is := is.New(t)
		for i, seq := range m.seqs {
			is.Equal(m.send(t, i), seq)
		}
		p.turnEnds(t, m.chat)
		answers, lost := strings.Count(p.text(t, m.chat), "answer"), len(p.lostTurns(t, m.chat))
		is.True(answers <= len(m.seqs) && answers+lost >= len(m.seqs)) // a turn that had begun may be lost and reported so
		p.checkChatAnswers(t, m.chat)
	}
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
	is.Equal(len(rows[projections.ShownExecution](t, p, "executions", chat)), 2)
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
