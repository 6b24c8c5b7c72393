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

// crash describes one chat at the time of a kill.
type crash struct {
	name string
	// to be played; every run of its command appends a line to the file named like the crash
	script string
	// reports whether the chat has reached its state with an event; the kill follows when the last chat has
	moment func(*testing.T, *process, events.Event) bool
	check  func(*testing.T, *process, string) // checks the chat after its end
}

const (
	shortCommand = "echo run >>%[1]s; echo hello"
	longCommand  = "echo run >>%[1]s; sleep 300 & sleep 300"
	endedCommand = "echo run >>%[1]s; until [ -e ended ]; do sleep 0.1; done" // whileOpenCodeIsStopped ends it
)

// delegation has a subagent run the command.
var delegation = call("task", map[string]any{"description": "test", "subagent_type": "general",
	"prompt": bash(shortCommand)}) + "\n@@next\n@@say done"

// writing is a script that creates the file of the crash.
var writing = call("write", map[string]any{"filePath": "%[1]s", "content": "run\n"}) + "\n@@next\n@@say done"

// crashes are applied to one system in turn, so that later crashes also test recovery from earlier ones. A crash
// affects several chats. All chats except the last wait for a person, for a long command or for a paused process. The
// kill comes when the last chat reaches its moment.
var crashes = [][]crash{
	{
		{name: "running", script: bash(longCommand), moment: commandRuns, check: commandIsLost},
		{name: "pending", script: bash(shortCommand), moment: requestIsPending, check: resumedByApproval},
		{name: "asked", script: bash(shortCommand), moment: on("opencode.permission.asked"), check: resumedByApproval},
	},
	{
		{name: "streaming", script: "@@text n=4000 delay=20", moment: textStreams, check: turnIsLost},
		{name: "written", script: writing, moment: requestIsPending, check: resumedByApproval},
		{name: "replied", script: bash(shortCommand), moment: on("opencode.permission.replied"), check: finishedOrLost},
	},
	{
		{name: "delegated", script: delegation, moment: subagentWaits, check: delegatedAgain},
		{name: "delivered", script: "@@hang", moment: on("message.delivered"), check: lostWithoutAnswer},
		{name: "answered", script: "@@text n=3 delay=10", moment: partEnded("step-finish"), check: saidWhole},
	},
	{
		{name: "questioned", script: twoQuestions, moment: on("opencode.question.asked"), check: questionsSurvive},
		{name: "bound", script: bash(shortCommand), moment: on("session.bound"), check: finishedOrLost},
	},
	{
		{name: "requested", script: bash(shortCommand), moment: commandWaitsForWorker, check: finishedOrLost},
		{name: "sending", script: bash(shortCommand), moment: on("message.sending"), check: finishedOrLost},
	},
	{
		{name: "finished", script: bash(endedCommand), moment: commandRuns, check: finishedAndLost},
		{name: "decided", script: bash(shortCommand), moment: requestIsPending, check: resumedByApproval},
		{name: "submitted", script: bash(shortCommand), moment: whileOpenCodeIsStopped, check: finishedWhole},
	},
}

func TestKillAtAnyMomentLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	killRepeatedly(t, crashes)
}

// killRepeatedly kills one system several times.
func killRepeatedly(t *testing.T, all [][]crash) {
	t.Helper()
	p := start(t)
	for _, together := range all {
		var names []string
		for _, c := range together {
			names = append(names, c.name)
		}
		if !t.Run(strings.Join(names, " and "), func(t *testing.T) { p.t = t; killOnce(t, p, together) }) {
			return // further checks would only repeat the failure
		}
	}
	p.t = t
}

// killOnce brings a chat to each moment, kills everything, starts it again, and lets the chats come to their ends.
func killOnce(t *testing.T, p *process, together []crash) {
	var chats []string
	var seen []events.Event
	defer func() {
		if t.Failed() {
			for _, chat := range chats {
				t.Log(p.describeChat(chat))
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
		seen = p.runUntil(t, chats[i], script, c.moment, then)
	}
	left := p.leftover(t)
	left.resume()
	p.restart()
	left.awaitEnd(t)

	for i, c := range together {
		p.finishAfterCrash(t, chats[i])
		c.check(t, p, chats[i])
		p.checkChatAnswers(t, chats[i])
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
	return p.runUntil(t, chat, script, at, p.kill)
}

// runUntil submits a script and follows the log until the moment has come; then it calls then. Meanwhile it approves
// the requests that the policy leaves to a person. It returns all events since the first of the log.
func (p *process) runUntil(t *testing.T, chat, script string, at func(*testing.T, *process, events.Event) bool,
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

// describeChat returns the events of a chat, one on each line.
func (p *process) describeChat(chat string) string {
	var lines []string
	_, err := p.Log.Fold(context.Background(), events.ChatFilter(chat), 0, func(e events.Event) error {
		lines = append(lines, fmt.Sprintf("%s #%d %s %s %.300s", e.Time.Format("05.000"), e.Seq, e.Source, e.Subject.Kind,
			e.Data))
		return nil
	})
	return strings.Join(append(lines, fmt.Sprint(err)), "\n")
}

// finishAfterCrash waits for the end of a chat's turn after a crash. It approves pending requests, and waits until all
// decisions have reached OpenCode, or the chat in a continue prompt.
func (p *process) finishAfterCrash(t *testing.T, chat string) {
	t.Helper()
	expect.Eventually(t, "chat "+chat+" settles", func() bool {
		resumed := p.resumes(t, chat)
		requests := rows[projections.Permission](t, p, "permissions", chat)
		granted := map[string]bool{}
		for _, a := range requests {
			if a.Interrupted && a.Status == projections.PermissionAuthorized && !a.GrantUsed {
				granted[a.Request] = true
			}
		}
		open := false
		for _, a := range requests {
			switch {
			case a.Status == projections.PermissionDraft:
				open = true
				if !granted[a.Request] { // otherwise its earlier approval counts, without a new request
					p.approveUnlessDecided(t, chat, a)
				}
			case a.Status == projections.PermissionAuthorized && !a.Replied && !a.GrantUsed &&
				resumed[a.EnginePermission] == 0:
				open = true
			}
		}
		return !open && p.row(t, chat).Turn == projections.TurnUser
	})
}

// resumes counts the continue prompts of a chat by the request whose approval they carry out.
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

// approveUnlessDecided approves a request, unless it was decided meanwhile.
func (p *process) approveUnlessDecided(t *testing.T, chat string, a projections.Permission) {
	t.Helper()
	_, err := handlers.Send(t.Context(), p.Conn, "permission.decide",
		permission.Decide{Chat: chat, Permission: a.EnginePermission, Decision: events.Authorized})
	if refused := (handlers.Refused{}); err != nil && !(errors.As(err, &refused) && refused.Code == handlers.Conflict) {
		t.Fatal(err)
	}
}
