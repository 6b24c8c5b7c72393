package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
	chats "pocketcoder/handlers/chat"
	"pocketcoder/projections"
	"pocketcoder/projections/executions"
	"pocketcoder/projections/questions"
)

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
	if !found || last.Parent != question.EngineMessage || last.EngineStatus != "completed" ||
		!strings.Contains(string(last.Parts), "still here") {
		t.Fatalf("the next message is not answered: %+v, last is %+v", question, last)
	}
}

// finishedOrLost holds for a command that was called for once: it ran and the turn went on to its end, or the turn is
// lost and the command did not run again.
func finishedOrLost(t *testing.T, p *process, chat string) {
	t.Helper()
	runs := p.timesRun(t, p.row(t, chat).Title)
	switch text := p.text(t, chat); {
	case runs == 1 && text == "done":
	case runs <= 1 && len(p.lost(t, chat)) == 1:
	default:
		t.Fatalf("the command ran %d times, the assistant said %q, turns lost: %d", runs, text, len(p.lost(t, chat)))
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

// resumedOrDone holds when the decision raced with the crash: OpenCode never heard of it, and the turn is resumed by
// it, or it did, and the turn is lost.
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
	ran := rows[executions.Run](t, p, "executions", chat)
	is.Equal(len(ran), 1)
	is.Equal(ran[0].Status, "lost")
	is.Equal(p.timesRun(t, p.row(t, chat).Title), 1)
	turnIsLost(t, p, chat)
}

// questionsSurvive holds for questions OpenCode has forgotten: answering them resumes the turn.
func questionsSurvive(t *testing.T, p *process, chat string) {
	t.Helper()
	is := is.New(t)
	p.forgotten(t, chat)
	open := rows[questions.Question](t, p, "questions", chat)
	is.Equal(len(open), 2)
	for i, q := range open {
		is.NoErr(p.answer(t, chats.AnswerQuestion{Chat: chat, Question: q.EngineQuestion, Index: i,
			Answers: []string{"my own"}}))
	}
	expect.Eventually(t, "the turn goes on", func() bool { return p.text(t, chat) == "thanks" })
	p.turnEnds(t, chat)
	is.Equal(p.resumes(t, chat), map[string]int{open[0].EngineQuestion: 1})
	is.Equal(len(p.lost(t, chat)), 1)
}

// delegatedAgain holds for a subagent whose ask was pending: its approval is good for the command of the one that takes
// its place when the chat's turn is resumed.
func delegatedAgain(t *testing.T, p *process, chat string) {
	t.Helper()
	is := is.New(t)
	asks := rows[projections.Permission](t, p, "permissions", chat)
	is.Equal(len(asks), 4)
	is.Equal([]string{asks[0].Permission, asks[1].Permission, asks[2].Permission, asks[3].Permission},
		[]string{"task", "bash", "task", "bash"})
	is.True(asks[1].Interrupted && asks[1].GrantUsed)
	is.Equal(p.timesRun(t, p.row(t, chat).Title), 1)
	is.True(strings.HasSuffix(p.text(t, chat), "done"))
}

// turnIsLost holds for a turn that the crash cut short, and says so.
func turnIsLost(t *testing.T, p *process, chat string) {
	t.Helper()
	is := is.New(t)
	is.Equal(len(p.lost(t, chat)), 1)
	all := rows[projections.ShownMessage](t, p, "messages", chat)
	last := all[len(all)-1]
	is.Equal(last.Role, "assistant")
	// OpenCode heard the end of the command before it died, and did not ask the model again
	if last.EngineStatus == "completed" {
		return
	}
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

// timesRun is how often the command of a crash has run: each run appends a line.
func (p *process) timesRun(t *testing.T, name string) int {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(p.workspace, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(body), "\n")
}
