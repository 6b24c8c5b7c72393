package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	chats "pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// checkChatAnswers checks that a chat still answers messages.
func (p *process) checkChatAnswers(t *testing.T, chat string) {
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
	if !found || last.Parent != question.EngineMessage || last.EngineStatus != "completed" ||
		!strings.Contains(string(last.Parts), "still here") {
		t.Fatalf("the next message is not answered: %+v, last is %+v", question, last)
	}
}

// finishedOrLost checks a command that was called once: it ran and the turn completed, or the turn is lost and the
// command did not run again.
func finishedOrLost(t *testing.T, p *process, chat string) {
	t.Helper()
	runs := p.timesRun(t, p.row(t, chat).Title)
	switch text := p.text(t, chat); {
	case runs == 1 && text == "done":
	case runs <= 1 && len(p.lostTurns(t, chat)) == 1:
	default:
		t.Fatalf("the command ran %d times, the assistant said %q, turns lost: %d", runs, text, len(p.lostTurns(t, chat)))
	}
}

// finishedWhole checks a message that OpenCode did not receive before the crash: it is carried out as usual.
func finishedWhole(t *testing.T, p *process, chat string) {
	t.Helper()
	is := is.New(t)
	is.Equal(p.timesRun(t, p.row(t, chat).Title), 1)
	is.Equal(p.text(t, chat), "done")
	is.Equal(len(p.lostTurns(t, chat)), 0)
}

// finishedAndLost checks a command whose end OpenCode did not receive: its result is stored, and the turn is lost.
func finishedAndLost(t *testing.T, p *process, chat string) {
	t.Helper()
	is := is.New(t)
	ran := rows[projections.ShownExecution](t, p, "executions", chat)
	is.Equal(len(ran), 1)
	is.Equal(ran[0].Status, events.ExecutionCompleted)
	is.Equal(p.timesRun(t, p.row(t, chat).Title), 1)
	turnIsLost(t, p, chat)
}

// lostWithoutAnswer checks a message that OpenCode had received: it is not sent again.
func lostWithoutAnswer(t *testing.T, p *process, chat string) {
	t.Helper()
	is := is.New(t)
	is.Equal(len(p.lostTurns(t, chat)), 1)
	is.Equal(p.countEvents(t, chat)["message.delivered"], 1)
}

// resumedByApproval checks a request that was pending: it was interrupted and then approved, the turn was resumed, and
// the repeated call ran once without another request to a person.
func resumedByApproval(t *testing.T, p *process, chat string) {
	t.Helper()
	is := is.New(t)
	requests := rows[projections.Permission](t, p, "permissions", chat)
	is.Equal(len(requests), 2)
	is.True(requests[0].Interrupted)
	is.True(requests[0].GrantUsed)
	is.Equal(requests[0].Status, events.Authorized)
	is.Equal(requests[1].Status, events.Authorized)
	is.Equal(requests[1].DecidedBy, requests[0].DecidedBy)
	is.Equal(p.resumes(t, chat), map[string]int{requests[0].EnginePermission: 1})
	is.Equal(p.timesRun(t, p.row(t, chat).Title), 1)
	is.Equal(p.text(t, chat), "done")
}

// commandIsLost checks a command that was running: its result is unknown, and it does not run again.
func commandIsLost(t *testing.T, p *process, chat string) {
	t.Helper()
	is := is.New(t)
	ran := rows[projections.ShownExecution](t, p, "executions", chat)
	is.Equal(len(ran), 1)
	is.Equal(ran[0].Status, "lost")
	is.Equal(p.timesRun(t, p.row(t, chat).Title), 1)
	turnIsLost(t, p, chat)
}

// questionsSurvive checks questions that OpenCode has forgotten: answering them resumes the turn.
func questionsSurvive(t *testing.T, p *process, chat string) {
	t.Helper()
	is := is.New(t)
	p.awaitForgottenQuestions(t, chat)
	open := rows[projections.Question](t, p, "questions", chat)
	is.Equal(len(open), 2)
	for i, q := range open {
		is.NoErr(p.answer(t, chats.AnswerQuestion{Chat: chat, Question: q.EngineQuestion, Index: i,
			Answers: []string{"my own"}}))
	}
	expect.Eventually(t, "the turn goes on", func() bool { return p.text(t, chat) == "thanks" })
	p.turnEnds(t, chat)
	is.Equal(p.resumes(t, chat), map[string]int{open[0].EngineQuestion: 1})
	is.Equal(len(p.lostTurns(t, chat)), 1)
}

// delegatedAgain checks a subagent whose request was pending: the approval applies to the command of the subagent that
// replaces it when the chat's turn is resumed.
func delegatedAgain(t *testing.T, p *process, chat string) {
	t.Helper()
	is := is.New(t)
	requests := rows[projections.Permission](t, p, "permissions", chat)
	is.Equal(len(requests), 4)
	is.Equal([]string{requests[0].Permission, requests[1].Permission, requests[2].Permission, requests[3].Permission},
		[]string{"task", "bash", "task", "bash"})
	is.True(requests[1].Interrupted && requests[1].GrantUsed)
	is.Equal(p.timesRun(t, p.row(t, chat).Title), 1)
	is.True(strings.HasSuffix(p.text(t, chat), "done"))
}

// heldAndResumed checks a turn that has spent more than its chat may: the next message waits for the decision, and the
// approval resumes the turn once.
func heldAndResumed(t *testing.T, p *process, chat string) {
	t.Helper()
	is := is.New(t)
	request := p.awaitBudgetRequest(t, chat, 1)
	p.submit(t, chat, "@@usage in=1\n@@say hello")
	p.event(t, chat, events.MessageHeld{}.Kind(), nil)
	expect.Lacks(t, p.text(t, chat), "hello")
	p.approveUnlessDecided(t, chat, request)
	p.event(t, chat, "message.submitted", func(e events.Event) bool { return strings.Contains(string(e.Data), "resumes") })
	p.budget(t, "clear", "limited") // the rest is not part of this check
	expect.Eventually(t, "the next message is answered", func() bool {
		return strings.HasSuffix(p.text(t, chat), "hello")
	})
	p.turnEnds(t, chat)
	is.Equal(p.resumes(t, chat), map[string]int{request.EnginePermission: 1})
	is.Equal(p.countEvents(t, chat)["abort.requested"], 1)
	is.Equal(len(p.budgetRequests(t, chat)), 1)
}

// turnIsLost checks that a turn that the crash interrupted is reported as lost.
func turnIsLost(t *testing.T, p *process, chat string) {
	t.Helper()
	is := is.New(t)
	is.Equal(len(p.lostTurns(t, chat)), 1)
	all := rows[projections.ShownMessage](t, p, "messages", chat)
	last := all[len(all)-1]
	is.Equal(last.Role, "assistant")
	// OpenCode received the end of the command before it died, and did not call the model again
	if last.EngineStatus == "completed" {
		return
	}
	is.Equal(last.EngineStatus, "failed")
	is.Equal(last.ErrorDomain, "infrastructure")
}

// saidWhole checks an answer whose last part was stored: its text is complete.
func saidWhole(t *testing.T, p *process, chat string) {
	t.Helper()
	is.New(t).Equal(p.text(t, chat), "t0 t1 t2 ")
}

func (p *process) lostTurns(t *testing.T, chat string) (lost []events.Event) {
	t.Helper()
	for _, e := range p.history(t, chat) {
		if e.Subject.Kind == "turn.lost" {
			lost = append(lost, e)
		}
	}
	return lost
}

// timesRun returns how often the command of a crash has run: each run appends a line.
func (p *process) timesRun(t *testing.T, name string) int {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(p.workspace, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(body), "\n")
}
