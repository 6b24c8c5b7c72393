package replay

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/policy/display"
)

// event shows an event about commands, and reports whether it was the chat's last.
func (t *transcript) event(ctx context.Context, e events.Event) (over bool) {
	d, err := events.Decode(e)
	if err != nil {
		t.show.Event(e) // says that it cannot be read
		return false
	}
	switch d := d.(type) {
	case events.Deleted:
		return true
	case events.PermissionDecided:
		t.allowed[d.Permission] = t.allowedBy(e, d)
	case events.TurnLost:
		delete(t.busy, d.Session)
	case events.OpenCode:
		t.openCode(e, d)
	case events.ExecRequested:
		t.requested(e, d)
	case events.ExecRefused:
		if !t.isHidden(d.Session) {
			t.heading(e, d.Session, "", d.Cwd)
			t.show.Event(e)
		}
	case events.ExecFinished:
		t.finished(ctx, e, d)
	case events.SessionBound:
		t.show.Event(e)
	default: // of an execution
		var about struct{ Exec string }
		if json.Unmarshal(e.Data, &about) == nil && !t.hidden[about.Exec] {
			t.show.Event(e)
		}
	}
	return false
}

// isHidden reports whether the commands of a session are not shown.
func (t *transcript) isHidden(session string) bool { return t.Session != "" && session != t.Session }

// allowedBy returns who allowed a command.
func (t *transcript) allowedBy(e events.Event, d events.PermissionDecided) string {
	switch {
	case d.Decision != events.Authorized:
		return ""
	case d.Rule != "":
		return "allowed by the rule " + d.Rule
	}
	return "approved by " + t.show.Actor(e.Actor)
}

// openCode tracks the sessions, and which of them are running.
func (t *transcript) openCode(e events.Event, d events.OpenCode) {
	p := render.ReadPayload(d)
	if d.Type == "session.status" {
		t.busy[p.SessionID] = p.Status.Type != "idle"
		return
	}
	if p.Info.ParentID != "" {
		t.agents[p.SessionID] = p.Info.Agent
	}
	if t.Session != "" { // in a window of its own nothing is indented, and nothing said of the others
		t.show.Flatten(p.SessionID)
		return
	}
	t.show.Event(e)
}

// heading returns when a command began, who requested and who allowed it, and its directory.
func (t *transcript) heading(e events.Event, session, allowed, cwd string) {
	who := "the assistant"
	if agent, ok := t.agents[session]; ok {
		who = "subagent " + agent
	}
	if strings.HasPrefix(e.Actor, "user:") {
		who = t.show.Actor(e.Actor)
	}
	parts := []string{e.Time.Local().Format(time.DateTime), who}
	for _, part := range []string{allowed, cwd} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	t.show.Note(session, render.Cyan, "── %s", display.OneLine(strings.Join(parts, " · "), 400))
}

func (t *transcript) requested(e events.Event, d events.ExecRequested) {
	if t.hidden[d.Exec] = t.isHidden(d.Session); t.hidden[d.Exec] {
		return
	}
	t.running[d.Exec] = e.Time
	t.heading(e, d.Session, t.allowed[d.Permission], d.Cwd)
	switch {
	case d.Terminal: // it draws on a screen of its own, which is of no use among lines
		t.hidden[d.Exec] = true
		t.show.Note(d.Session, render.Bold, "a shell of a person's own, %s", d.Exec)
		if d.Private {
			t.show.Note(d.Session, render.Dim, "  (private: what it prints is not recorded)")
		}
	default:
		t.show.Event(e)
	}
}

// fragment shows a piece of output. The stream of them may have lost some.
func (t *transcript) fragment(d log.Delta) {
	exec := d.Subject[strings.LastIndexByte(d.Subject, '.')+1:]
	if t.hidden[exec] {
		return
	}
	t.show.FragmentAfterGap(d)
}

// outputTimeout is how long the transcript waits for the fragments of a command that has ended. Fragments arrive
// separately from events.
const outputTimeout = 2 * time.Second

func (t *transcript) finished(ctx context.Context, e events.Event, d events.ExecFinished) {
	began, known := t.running[d.Exec]
	delete(t.running, d.Exec)
	if t.hidden[d.Exec] {
		if known {
			t.show.Note("", render.EndStyle(d), "the shell %s of %s ended: %s", d.Exec, began.Local().Format(time.TimeOnly),
				render.ExecutionEnd(d))
		}
		return
	}
	late := time.After(t.outputTimeout)
	for waiting := t.caughtUp && known; waiting && t.show.OutputMissing(d); {
		select {
		case f := <-t.fragments:
			t.fragment(f)
		case <-late:
			waiting = false
		case <-ctx.Done():
			return
		}
	}
	t.show.Event(e)
}
