package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"

	"pocketcoder/cmd/client"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// crash describes one chat at the time of a kill.
type crash struct {
	name string
	// to be played; every run of its command appends a line to the file named like the crash
	script string
	// reports whether the chat has reached its state with an event; the kill follows when the last chat has
	moment  func(*testing.T, *process, events.Event) bool
	decides bool                               // check decides the pending request of the chat
	check   func(*testing.T, *process, string) // checks the chat after its end
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

// crashedTogether are chats in different states at one kill. All chats except the last wait: for a person, a command, a
// long text, or OpenCode, which is stopped. The kill comes when the last chat reaches its moment.
var crashedTogether = []crash{
	{name: "running", script: bash(longCommand), moment: commandRuns, check: commandIsLost},
	{name: "pending", script: bash(shortCommand), moment: requestIsPending, check: resumedByApproval},
	{name: "streaming", script: longText, moment: textStreams, check: turnIsLost},
	{name: "written", script: writing, moment: requestIsPending, check: resumedByApproval},
	{name: "delegated", script: delegation, moment: subagentWaits, check: delegatedAgain},
	{name: "delivered", script: "@@hang", moment: on("message.delivered"), check: lostWithoutAnswer},
	{name: "finished", script: bash(endedCommand), moment: commandRuns, check: finishedAndLost},
	{name: "decided", script: bash(shortCommand), moment: requestIsPending, check: resumedByApproval},
	{name: "limited", script: crossesLimit, moment: limitIsCrossed, decides: true, check: heldAndResumed},
	{name: "submitted", script: bash(shortCommand), moment: whileOpenCodeIsStopped, check: finishedWhole},
}

// furtherCrashes are chats for further kills. Each kill has a moment of its own.
var furtherCrashes = [][]crash{
	{{name: "asked", script: bash(shortCommand), moment: on("opencode.permission.asked"), check: resumedByApproval}},
	{{name: "replied", script: bash(shortCommand), moment: on("opencode.permission.replied"), check: finishedOrLost}},
	{{name: "answered", script: "@@text n=3 delay=10", moment: partEnded("step-finish"), check: saidWhole}},
	{
		{name: "questioned", script: twoQuestions, moment: on("opencode.question.asked"), check: questionsSurvive},
		{name: "bound", script: bash(shortCommand), moment: on("session.bound"), check: finishedOrLost},
	},
	{
		{name: "requested", script: bash(shortCommand), moment: commandWaitsForWorker, check: finishedOrLost},
		{name: "sending", script: bash(shortCommand), moment: on("message.sending"), check: finishedOrLost},
	},
}

var killAll = flag.Bool("kill.all", false, "kill everything at further moments")

// The stages share a system, because each start of OpenCode takes seconds. Packages below bridge and handlers test what
// each moment of a kill leaves. Here the real OpenCode and the real processes are killed.
func TestDeathOfAnyPartLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	fault := expect.CountFault(t, "events seen before the last kill", "of them there afterwards")
	p := start(t, "--push-allow-private", "--allow", "todowrite: *", "--max-turns", "0")
	repeated := repeatedMessages{process: p}
	var calls callsThatWait
	runStages(t, p, stage{"the worker dies", func(t *testing.T, p *process) {
		causeAndCheck(t, p, workerDies, healthcheckFollows("sandbox"))
		fault.Tried()
	}},
		stage{"OpenCode dies", func(t *testing.T, p *process) {
			causeAndCheck(t, p, killOpenCode, incidentCheck{"what it ran is lost, and continues", lostTurnsContinue},
				healthcheckFollows("opencode"),
				incidentCheck{"a file that changed while OpenCode was away is shown again", fileChangedMeanwhileIsShown},
				incidentCheck{"a detached server lives on", detachedServerLivesOn})
			fault.Tried()
		}},
		stage{"everything dies", func(t *testing.T, p *process) {
			seen, phone := p.allEvents(t), phoneTalk{}
			kill := func() {
				p.kill()
				phone.pressApprove(t)
			}
			causeAndCheck(t, p, func(t *testing.T, p *process) { killOnce(t, p, repeated.with(crashedTogether), kill) },
				incidentCheck{"a client's stream goes on", streamGoesOn},
				incidentCheck{"calls that wait survive", calls.surviveIncident},
				incidentCheck{"queues keep their changes", queuesKeepTheirChanges},
				incidentCheck{"a conversation in a messenger goes on", phone.surviveIncident},
				incidentCheck{"messages that are sent again are there once", repeated.surviveIncident})
			p.check(t, seen)
			fault.Tried()
			fault.Saw(len(seen), countThere(p.allEvents(t), seen))
		}},
		stage{"everything dies at further moments", killAtFurtherMoments},
		stage{"everything dies during the start", long("starts the system several times", killDuringStart)},
		stage{"nothing is resumed again", func(t *testing.T, p *process) {
			calls.half.checkNotResumedAgain(t, p)
			p.check(t, nil)
		}})
}

// killAtFurtherMoments does so with -kill.all.
func killAtFurtherMoments(t *testing.T, p *process) {
	if !*killAll {
		return
	}
	for _, together := range furtherCrashes {
		seen := p.allEvents(t)
		killOnce(t, p, together, p.kill)
		p.check(t, seen)
	}
}

// killOnce brings a chat to each moment, kills everything, starts it again, and lets the chats come to their ends.
func killOnce(t *testing.T, p *process, together []crash, kill func()) {
	t.Helper()
	var chats []string
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
			then = kill
		}
		p.runUntil(t, chats[i], script, c.moment, then)
	}
	left := p.leftover(t)
	left.resume()
	p.restart()
	left.awaitEnd(t)

	for i, c := range together {
		if !c.decides {
			p.finishAfterCrash(t, chats[i])
		}
		c.check(t, p, chats[i])
		p.checkChatAnswers(t, chats[i])
	}
}

// create makes an empty chat.
func (p *process) create(t *testing.T, title string) (chat string) {
	t.Helper()
	chat, err := p.Create(t.Context(), "chats", record{"title": title})
	if err != nil {
		t.Fatal(err)
	}
	return chat
}

// runUntil submits a script and follows the log until the moment has come; then it calls then. Meanwhile it approves
// the requests that the policy leaves to a person.
func (p *process) runUntil(t *testing.T, chat, script string, at func(*testing.T, *process, events.Event) bool,
	then func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	submitted := false
	err := p.Log.Read(ctx, 0, []string{events.ChatFilter(chat)}, func(b log.Batch) error {
		for _, e := range b.Events {
			if at(t, p, e) {
				then()
				return events.ErrStop
			}
			d, _ := events.Decode(e)
			if left, ok := d.(events.PermissionReferred); ok && strings.HasPrefix(left.Permission, "per_") {
				p.decide(t, chat, events.PermissionRequest{ID: left.Permission}, events.Authorized, "")
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
			if a.Interrupted && a.Status == events.Authorized && !a.GrantUsed {
				granted[a.Request] = true
			}
		}
		open := false
		for _, a := range requests {
			switch {
			case a.Status == events.Draft:
				open = true
				if !granted[a.Request] { // otherwise its earlier approval counts, without a new request
					p.approveUnlessDecided(t, chat, a)
				}
			case a.Status == events.Authorized && !a.Replied && !a.GrantUsed &&
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
	err := p.Decide(t.Context(), a.EnginePermission, client.Decision{Status: events.Authorized})
	if refused := (handlers.Refused{}); err != nil && !(errors.As(err, &refused) && refused.Code == handlers.Conflict) {
		t.Fatal(err)
	}
}
