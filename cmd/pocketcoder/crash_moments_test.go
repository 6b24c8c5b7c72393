package main

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// longText is a script whose text takes longer than a test.
const longText = "@@text n=4000 delay=200"

// crossesLimit is a script whose first step spends more than limitIsCrossed allows.
var crossesLimit = stepsScript(2, "in=1 out=50000")

// on returns the moment at which the log has an event of a kind.
func on(kind string) func(*testing.T, *process, events.Event) bool {
	return func(_ *testing.T, _ *process, e events.Event) bool { return e.Subject.Kind == kind }
}

// commandRuns is the moment at which the command runs: it has written its line.
func commandRuns(t *testing.T, p *process, e events.Event) bool {
	if e.Subject.Kind != "exec.requested" {
		return false
	}
	name := p.row(t, e.Subject.ID).Title
	expect.Eventually(t, "the command runs", func() bool { return p.timesRun(t, name) == 1 })
	return true
}

// commandWaitsForWorker is the moment at which a command waits for the worker, which is stopped before.
func commandWaitsForWorker(t *testing.T, p *process, e events.Event) bool {
	if e.Subject.Kind == "opencode.permission.asked" {
		stopProcess(t, p.worker(t))
	}
	return e.Subject.Kind == "exec.requested"
}

// whileOpenCodeIsStopped is the moment at which a message is submitted that OpenCode cannot receive. Before, the
// command of the chat "finished" has ended and the request of the chat "decided" is approved.
func whileOpenCodeIsStopped(t *testing.T, p *process, e events.Event) bool {
	if e.Subject.Kind == (events.ChatCreated{}).Kind() {
		_, pid := p.engine(t)
		stopProcess(t, innermostPID(pid))
		ids := map[string]string{}
		for _, c := range rows[projections.Chat](t, p, "chats", "") {
			ids[c.Title] = c.ID
		}
		expect.WriteFile(t, filepath.Join(p.workspace, "ended"), "")
		p.finished(t, ids["finished"], 0)
		p.approveUnlessDecided(t, ids["decided"], rows[projections.Permission](t, p, "permissions", ids["decided"])[0])
	}
	return e.Subject.Kind == "message.submitted"
}

// limitIsCrossed is the moment at which a turn has spent more than its chat may, and more is asked for. OpenCode is
// stopped before, so it does not get the abort.
func limitIsCrossed(t *testing.T, p *process, e events.Event) bool {
	switch chat := e.Subject.ID; {
	case e.Subject.Kind == (events.ChatCreated{}).Kind():
		p.budget(t, "set", "limited", "--scope", "chat", "--chat", chat, "--tokens", "40000")
	case e.Subject.Kind == "opencode.message.updated" && strings.Contains(string(e.Data), `"output":50000`):
		_, pid := p.engine(t)
		stopProcess(t, innermostPID(pid))
		p.awaitBudgetRequest(t, chat, 1)
		return true
	}
	return false
}

// stopProcess stops a process until it is continued or killed.
func stopProcess(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// requestIsPending is the moment at which a request waits for a person.
func requestIsPending(t *testing.T, p *process, e events.Event) bool {
	if e.Subject.Kind != "opencode.permission.asked" {
		return false
	}
	expect.Eventually(t, "the request is pending", func() bool {
		requests := rows[projections.Permission](t, p, "permissions", e.Subject.ID)
		return len(requests) == 1 && requests[0].Status == events.Draft
	})
	return true
}

// subagentWaits is the moment at which a subagent waits for a person.
func subagentWaits(t *testing.T, p *process, e events.Event) bool {
	return e.Subject.Kind == "opencode.permission.asked" && strings.Contains(string(e.Data), `"permission":"bash"`)
}

// textStreams is the moment at which some of the text has come.
func textStreams(t *testing.T, p *process, e events.Event) bool {
	if e.Subject.Kind != "opencode.message.part.updated" || partOf(t, e).Type != "text" || partOf(t, e).Text != "" {
		return false
	}
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	fragments := 0
	if err := p.Log.FollowDeltas(ctx, events.ChatDeltaFilters(e.Subject.ID), func(log.Delta) {
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
