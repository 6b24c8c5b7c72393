package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/expect"
	"pocketcoder/handlers"
	chats "pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/projections"
)

// crash is a moment of a turn at which everything is killed.
type crash struct {
	name string
	// to be played; every run of its command appends a line to the file named like the crash
	script string
	// says of an event of the chat that everything is to be killed now
	at   func(*testing.T, *process, events.Event) bool
	then func(*testing.T, *process, string) // what this moment promises, once the chat has come to its end
}

const (
	shortCommand = "echo run >>%[1]s; echo hello"
	longCommand  = "echo run >>%[1]s; sleep 300 & sleep 300"
)

// delegation has a subagent run the command.
var delegation = call("task", map[string]any{"description": "test", "subagent_type": "general",
	"prompt": bash(shortCommand)}) + "\n@@next\n@@say done"

// writing makes the file of the crash.
var writing = call("write", map[string]any{"filePath": "%[1]s", "content": "run\n"}) + "\n@@next\n@@say done"

// lanes are systems, each killed several times, so that what earlier crashes left is there at later ones. One crash
// meets several chats: all but the last have reached a moment that lasts, and the crash comes at once when the last
// reaches its moment.
var lanes = [][][]crash{{
	{
		{name: "running", script: bash(longCommand), at: commandRuns, then: commandIsLost},
		{name: "submitted", script: bash(shortCommand), at: on("message.submitted"), then: finishedOrLost},
	},
	{{name: "asked", script: bash(shortCommand), at: on("opencode.permission.asked"), then: resumedByApproval}},
	{
		{name: "streaming", script: "@@text n=4000 delay=20", at: textStreams, then: turnIsLost},
		{name: "replied", script: bash(shortCommand), at: on("opencode.permission.replied"), then: finishedOrLost},
	},
	{{name: "answered", script: "@@text n=3 delay=10", at: partEnded("step-finish"), then: saidWhole}},
	{{name: "requested", script: bash(shortCommand), at: on("exec.requested"), then: finishedOrLost}},
	{{name: "bound", script: bash(shortCommand), at: on("session.bound"), then: finishedOrLost}},
}, {
	{
		{name: "pending", script: bash(shortCommand), at: askWaits, then: resumedByApproval},
		{name: "written", script: writing, at: askWaits, then: resumedByApproval},
		{name: "sending", script: bash(shortCommand), at: on("message.sending"), then: finishedOrLost},
	},
	{{name: "finished", script: bash(shortCommand), at: on("exec.finished"), then: finishedOrLost}},
	{
		{name: "delegated", script: delegation, at: subagentAsks, then: delegatedAgain},
		{name: "questioned", script: twoQuestions, at: on("opencode.question.asked"), then: questionsSurvive},
		{name: "delivered", script: bash(shortCommand), at: on("message.delivered"), then: finishedOrLost},
	},
	{{name: "decided", script: bash(shortCommand), at: on("permission.decided"), then: resumedOrDone}},
	{{name: "busy", script: bash(shortCommand), at: on("opencode.session.status"), then: finishedOrLost}},
}}

func TestKillAtAnyMomentLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for i, lane := range lanes {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			t.Parallel()
			p := start(t)
			for _, together := range lane {
				var names []string
				for _, c := range together {
					names = append(names, c.name)
				}
				if !t.Run(strings.Join(names, " and "), func(t *testing.T) { p.t = t; playAll(t, p, together) }) {
					return // what follows would only repeat it
				}
			}
			p.t = t
		})
	}
}

// playAll brings a chat to each moment, kills everything, starts it again, and lets the chats come to their ends.
func playAll(t *testing.T, p *process, together []crash) {
	var chats []string
	var seen []events.Event
	defer func() {
		if t.Failed() {
			for _, chat := range chats {
				t.Log(p.story(chat))
			}
		}
	}()
	for i, c := range together {
		script := c.script
		if strings.Contains(script, "%[1]s") {
			script = fmt.Sprintf(script, c.name)
		}
		chats = append(chats, p.create(t, c.name))
		then := func() {}
		if i == len(together)-1 {
			then = p.kill
		}
		seen = p.when(t, chats[i], script, c.at, then)
	}
	left := p.leftover(t)
	p.restart()
	left.areGone(t)

	for i, c := range together {
		p.settle(t, chats[i])
		c.then(t, p, chats[i])
		p.answers(t, chats[i])
	}
	p.check(t, seen)
}

// create makes an empty chat.
func (p *process) create(t *testing.T, title string) (chat string) {
	t.Helper()
	a, err := handlers.Send(t.Context(), p.Conn, "chat.create", chats.Create{Title: title})
	if err != nil {
		t.Fatal(err)
	}
	return a.ID
}

// killWhen submits a script and kills everything at a moment.
func (p *process) killWhen(t *testing.T, chat, script string,
	at func(*testing.T, *process, events.Event) bool) (seen []events.Event) {
	t.Helper()
	return p.when(t, chat, script, at, p.kill)
}

// when submits a script and follows the log, approving what the policy leaves to a person, until the moment has come;
// then it calls then. It returns all events it was given, since the first of the log.
func (p *process) when(t *testing.T, chat, script string, at func(*testing.T, *process, events.Event) bool,
	then func()) (seen []events.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	submitted := false
	err := p.Log.Read(ctx, 0, nil, func(b log.Batch) error {
		seen = append(seen, b.Events...)
		for _, e := range b.Events {
			if e.Subject.ID != chat {
				continue
			}
			if at(t, p, e) {
				then()
				return events.ErrStop
			}
			d, _ := events.Decode(e)
			if left, ok := d.(events.PermissionReferred); ok && strings.HasPrefix(left.Permission, "per_") {
				p.decide(t, chat, events.PermissionAsk{ID: left.Permission}, events.Authorized, "")
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

// story is what has happened in a chat, one event a line.
func (p *process) story(chat string) string {
	var lines []string
	_, err := p.Log.Fold(context.Background(), events.ChatFilter(chat), 0, func(e events.Event) error {
		lines = append(lines, fmt.Sprintf("%s #%d %s %s %.300s", e.Time.Format("05.000"), e.Seq, e.Source, e.Subject.Kind,
			e.Data))
		return nil
	})
	return strings.Join(append(lines, fmt.Sprint(err)), "\n")
}

// settle lets a chat come to its end after a crash: it approves what waits for a person, and waits until all that was
// decided has reached OpenCode, or the chat in a continue prompt, and the turn is the person's.
func (p *process) settle(t *testing.T, chat string) {
	t.Helper()
	expect.Eventually(t, "chat "+chat+" settles", func() bool {
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
	_, err := handlers.Send(t.Context(), p.Conn, "permission.decide",
		permission.Decide{Chat: chat, Permission: a.EnginePermission, Decision: events.Authorized})
	if refused := (handlers.Refused{}); err != nil && !(errors.As(err, &refused) && refused.Code == handlers.Conflict) {
		t.Fatal(err)
	}
}
