//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/projections"
)

// crash is a moment of a turn at which everything is killed.
type crash struct {
	name   string
	script string                                        // to be played; every run of its command appends a line to the file named like the crash
	at     func(*testing.T, *process, events.Event) bool // says of an event of the chat that everything is to be killed now
	then   func(*testing.T, *process, string)            // what this moment promises, once the chat has come to its end
}

// on is the moment at which an event of a kind is in the log.
func on(kind string) func(*testing.T, *process, events.Event) bool {
	return func(_ *testing.T, _ *process, e events.Event) bool { return e.Subject.Kind == kind }
}

const (
	shortCommand = "echo run >>%[1]s; echo hello"
	longCommand  = "echo run >>%[1]s; sleep 300 & sleep 300"
)

// once calls for the command once, again calls for it in the next step too, for the model of a turn that was resumed.
func once(command string) string { return bash(command) }

func again(command string) string {
	ask := call("bash", map[string]any{"command": command, "description": "test"})
	return ask + "\n@@next\n" + ask + "\n@@next\n@@say done"
}

// lanes are systems, each killed at one moment after the other, so that what earlier crashes left is there at later ones.
var lanes = [][]crash{{
	{name: "submitted", script: once(shortCommand), at: on("message.submitted"), then: finishedOrLost},
	{name: "asked", script: again(shortCommand), at: on("opencode.permission.asked"), then: resumedOrDone},
	{name: "replied", script: once(shortCommand), at: on("opencode.permission.replied"), then: finishedOrLost},
	{name: "running", script: once(longCommand), at: commandRuns, then: commandIsLost},
	{name: "answered", script: "@@text n=3 delay=10", at: partEnded("step-finish"), then: saidWhole},
}, {
	{name: "sending", script: once(shortCommand), at: on("message.sending"), then: finishedOrLost},
	{name: "pending", script: again(shortCommand), at: askWaits, then: resumedByApproval},
	{name: "requested", script: once(shortCommand), at: on("exec.requested"), then: finishedOrLost},
	{name: "finished", script: once(shortCommand), at: on("exec.finished"), then: finishedOrLost},
}, {
	{name: "delivered", script: once(shortCommand), at: on("message.delivered"), then: finishedOrLost},
	{name: "streaming", script: "@@text n=400 delay=20", at: textStreams, then: turnIsLost},
	{name: "decided", script: again(shortCommand), at: on("permission.decided"), then: resumedOrDone},
	{name: "bound", script: once(shortCommand), at: on("session.bound"), then: finishedOrLost},
}}

func TestKillAtAnyMomentLosesAndRepeatsNothing(t *testing.T) {
	for i, lane := range lanes {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			t.Parallel()
			p := start(t)
			for _, c := range lane {
				if !t.Run(c.name, func(t *testing.T) { p.t = t; c.play(t, p) }) {
					return // what follows would only repeat it
				}
			}
			p.t = t
		})
	}
}

// play brings a chat to the moment, kills everything, starts it again, and lets the chat come to its end.
func (c crash) play(t *testing.T, p *process) {
	is := is.New(t)
	script := c.script
	if strings.Contains(script, "%[1]s") {
		script = fmt.Sprintf(script, c.name)
	}
	a, err := handlers.Give(t.Context(), p.nc, "chat.create", handlers.CreateChat{Title: c.name})
	is.NoErr(err)
	seen := p.killWhen(t, a.ID, script, c.at)
	left := p.leftover(t)
	p.restart()
	left.areGone(t)

	p.settle(t, a.ID)
	c.then(t, p, a.ID)
	p.answers(t, a.ID)
	p.check(t, seen)
}

// killWhen submits a script and follows the log, approving what is asked, until the moment has come; then it kills
// everything. It returns all events it was given, since the first of the log.
func (p *process) killWhen(t *testing.T, chat, script string, at func(*testing.T, *process, events.Event) bool) (seen []events.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	submitted := false
	err := p.log.Read(ctx, 0, nil, func(b events.Batch) error {
		seen = append(seen, b.Events...)
		for _, e := range b.Events {
			if e.Subject.ID != chat {
				continue
			}
			if at(t, p, e) {
				p.kill()
				return events.ErrStop
			}
			if e.Subject.Kind == "opencode.permission.asked" {
				var ask events.PermissionAsk
				if err := json.Unmarshal(e.Data, &ask); err != nil {
					return err
				}
				p.decide(t, chat, ask, events.Authorized, "")
			}
		}
		if b.Behind == 0 && !submitted {
			submitted = true
			p.submit(t, chat, script)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("the moment did not come: %v; chat has\n%s", err, strings.Join(p.kinds(context.Background(), chat), "\n"))
	}
	return seen
}

// commandRuns is the moment at which the command runs: it has written its line.
func commandRuns(t *testing.T, p *process, e events.Event) bool {
	if e.Subject.Kind != "exec.requested" {
		return false
	}
	eventually(t, "the command runs", func() bool { return p.timesRun(t, "running") == 1 })
	return true
}

// askWaits is the moment at which an ask waits for a person: everybody has seen it.
func askWaits(t *testing.T, p *process, e events.Event) bool {
	if e.Subject.Kind != "opencode.permission.asked" {
		return false
	}
	eventually(t, "the ask is pending", func() bool {
		asks := rows[projections.Permission](t, p, "permissions", e.Subject.ID)
		return len(asks) == 1 && asks[0].Status == projections.PermissionDraft
	})
	return true
}

// textStreams is the moment at which some of the text has come.
func textStreams(t *testing.T, p *process, e events.Event) bool {
	if e.Subject.Kind != "opencode.message.part.updated" || partOf(t, e).Type != "text" || partOf(t, e).Text != "" {
		return false
	}
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	fragments := 0
	if err := p.log.FollowDeltas(ctx, events.ChatDeltaFilters(e.Subject.ID), func(events.Delta) {
		if fragments++; fragments == 5 {
			cancel()
		}
	}); !errors.Is(err, context.Canceled) {
		t.Fatalf("no text came: %v", err)
	}
	return true
}

// partEnded is the moment at which a part of that type is complete, after the turn has begun.
func partEnded(typ string) func(*testing.T, *process, events.Event) bool {
	return func(t *testing.T, _ *process, e events.Event) bool {
		return e.Subject.Kind == "opencode.message.part.updated" && partOf(t, e).Type == typ
	}
}

func partOf(t *testing.T, e events.Event) part {
	t.Helper()
	var b struct{ Part part }
	if err := json.Unmarshal(e.Data, &b); err != nil {
		t.Fatal(err)
	}
	return b.Part
}

// timesRun is how often the command of a crash has run: each run appends a line.
func (p *process) timesRun(t *testing.T, name string) int {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(p.workspace, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(body), "\n")
}

// settle lets a chat come to its end after a crash: it approves what waits for a person, and waits until all that was
// decided has reached OpenCode, or the chat in a continue prompt, and the turn is the person's.
func (p *process) settle(t *testing.T, chat string) {
	t.Helper()
	eventually(t, "chat "+chat+" settles", func() bool {
		resumed := p.resumes(t, chat)
		asks := rows[projections.Permission](t, p, "permissions", chat)
		granted := map[string]bool{}
		for _, a := range asks {
			if a.Interrupted && a.Status == projections.PermissionAuthorized && !a.GrantUsed {
				granted[a.Request] = true
			}
		}
		open := false
		for _, a := range asks {
			switch {
			case a.Status == projections.PermissionDraft:
				open = true
				if !granted[a.Request] { // else the approval it had counts, and nobody is asked
					p.allow(t, chat, a)
				}
			case a.Status == projections.PermissionAuthorized && !a.Replied && resumed[a.EnginePermission] == 0:
				open = true
			}
		}
		return !open && p.row(t, chat).Turn == projections.TurnUser
	})
}

// resumes counts the continue prompts of a chat by the ask whose approval they carry out.
func (p *process) resumes(t *testing.T, chat string) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, e := range p.history(t, chat) {
		if d, err := events.Decode(e); err == nil {
			if m, ok := d.(events.MessageSubmitted); ok && m.Resumes != "" {
				count[m.Resumes]++
			}
		}
	}
	return count
}

// allow approves an ask, unless it was settled meanwhile.
func (p *process) allow(t *testing.T, chat string, a projections.Permission) {
	t.Helper()
	_, err := handlers.Give(t.Context(), p.nc, "permission.decide",
		handlers.DecidePermission{Chat: chat, Permission: a.EnginePermission, Decision: events.Authorized})
	if refused := (handlers.Refused{}); err != nil && !(errors.As(err, &refused) && refused.Code == handlers.Conflict) {
		t.Fatal(err)
	}
}

// answers says that a chat is as usable as ever.
func (p *process) answers(t *testing.T, chat string) {
	t.Helper()
	message := p.submit(t, chat, "@@say still here")
	p.turnEnds(t, chat)
	all := rows[projections.ShownMessage](t, p, "messages", chat)
	last := all[len(all)-1]
	question, found := projections.ShownMessage{}, false
	for _, m := range all {
		if m.ID == message {
			question, found = m, true
		}
	}
	if !found || last.Parent != question.EngineMessage || last.EngineStatus != "completed" || !strings.Contains(string(last.Parts), "still here") {
		t.Fatalf("the next message is not answered: %+v, last is %+v", question, last)
	}
}

// finishedOrLost holds for a command that was called for once: it ran and the turn went on to its end, or the turn is
// lost and the command did not run again.
func finishedOrLost(t *testing.T, p *process, chat string) {
	t.Helper()
	runs := p.timesRun(t, p.row(t, chat).Title)
	switch said := p.text(t, chat); {
	case runs == 1 && said == "done":
	case runs <= 1 && len(p.lost(t, chat)) == 1:
	default:
		t.Fatalf("the command ran %d times, the assistant said %q, turns lost: %d", runs, said, len(p.lost(t, chat)))
	}
}

// resumedByApproval holds for an ask that was pending: it was interrupted and then approved, the turn was resumed, and
// the same command was asked for again and ran, once, without asking a person again.
func resumedByApproval(t *testing.T, p *process, chat string) {
	t.Helper()
	is := is.New(t)
	asks := rows[projections.Permission](t, p, "permissions", chat)
	is.Equal(len(asks), 2)
	is.True(asks[0].Interrupted)
	is.True(asks[0].GrantUsed)
	is.Equal(asks[0].Status, projections.PermissionAuthorized)
	is.Equal(asks[1].Status, projections.PermissionAuthorized)
	is.Equal(asks[1].DecidedBy, asks[0].DecidedBy)
	is.Equal(p.resumes(t, chat), map[string]int{asks[0].EnginePermission: 1})
	is.Equal(p.timesRun(t, p.row(t, chat).Title), 1)
	is.Equal(p.text(t, chat), "done")
}

// resumedOrDone holds when the decision raced with the crash: OpenCode never heard of it, and the turn is resumed by it,
// or it did, and the turn is lost.
func resumedOrDone(t *testing.T, p *process, chat string) {
	t.Helper()
	if len(p.resumes(t, chat)) > 0 {
		resumedByApproval(t, p, chat)
		return
	}
	if runs := p.timesRun(t, p.row(t, chat).Title); runs > 1 || len(p.lost(t, chat)) != 1 {
		t.Fatalf("the command ran %d times; turns lost: %d", runs, len(p.lost(t, chat)))
	}
}

// commandIsLost holds for a command that was running: nobody knows what came of it, and it is not run again.
func commandIsLost(t *testing.T, p *process, chat string) {
	t.Helper()
	is := is.New(t)
	ran := rows[projections.Run](t, p, "executions", chat)
	is.Equal(len(ran), 1)
	is.Equal(ran[0].Status, "lost")
	is.Equal(p.timesRun(t, p.row(t, chat).Title), 1)
	turnIsLost(t, p, chat)
}

// turnIsLost holds for a turn that the crash cut short, and says so.
func turnIsLost(t *testing.T, p *process, chat string) {
	t.Helper()
	is := is.New(t)
	is.Equal(len(p.lost(t, chat)), 1)
	all := rows[projections.ShownMessage](t, p, "messages", chat)
	last := all[len(all)-1]
	is.Equal(last.Role, "assistant")
	is.Equal(last.EngineStatus, "failed")
	is.Equal(last.ErrorDomain, "infrastructure")
}

// saidWhole holds for an answer whose last part was there.
func saidWhole(t *testing.T, p *process, chat string) {
	t.Helper()
	is.New(t).Equal(p.text(t, chat), "t0 t1 t2 ")
}

func (p *process) lost(t *testing.T, chat string) (lost []events.Event) {
	t.Helper()
	for _, e := range p.history(t, chat) {
		if e.Subject.Kind == "turn.lost" {
			lost = append(lost, e)
		}
	}
	return lost
}
