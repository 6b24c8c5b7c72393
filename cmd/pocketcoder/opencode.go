package main

import (
	"encoding/json"
	"strings"

	"pocketcoder/events"
)

func (r *renderer) openCode(e events.Event, d events.OpenCode) {
	switch d.Type {
	case events.PermissionAsked:
		var ask events.PermissionAsk
		if json.Unmarshal(d.Properties, &ask) == nil {
			r.addAsk(ask, e.Seq)
		}
		return
	case events.QuestionAsked:
		var ask events.QuestionAsk
		if json.Unmarshal(d.Properties, &ask) == nil && !r.live { // live, it is shown when it is its turn to be answered
			for _, q := range openQuestions(ask) {
				r.showQuestion(q)
			}
		}
		return
	}
	p := readOpenCode(d)
	switch d.Type {
	case "session.created", "session.updated":
		r.session(p)
	case "session.status":
		if p.Status.Type == "retry" {
			r.note(p.SessionID, yellow, "the model provider failed, attempt %d: %s", p.Status.Attempt, p.Status.Message)
		}
	case "session.error":
		if p.Error.Name == abortedError {
			r.stopped[p.SessionID] = true
			r.sayStopped(p.SessionID)
		} else {
			r.note(p.SessionID, red, "error: %s", p.Error)
		}
	case "session.compacted":
		r.note(p.SessionID, dim, "(what was said before was summarised to make room)")
	case "message.updated":
		r.roles[p.Info.ID] = p.Info.Role
	case "message.part.updated":
		r.openCodePart(p.Part)
	case "message.removed":
		r.note(p.SessionID, dim, "(a message was removed)")
	case events.PermissionReplied:
		r.replied(e, p)
	case events.QuestionReplied, events.QuestionRejected:
		r.questionReplied(e, p)
	}
}

// session places a session in the tree.
func (r *renderer) session(p openCodePayload) {
	r.directory[p.SessionID] = p.Info.Directory
	if _, known := r.depth[p.SessionID]; known {
		return
	}
	if p.Info.ParentID == "" {
		r.depth[p.SessionID] = 0
		return
	}
	if _, known := r.depth[p.Info.ParentID]; !known {
		r.depth[p.Info.ParentID] = 0
	}
	r.depth[p.SessionID] = r.depth[p.Info.ParentID] + 1
	r.note(p.Info.ParentID, cyan, "↳ subagent %s: %s", p.Info.Agent, p.Info.Title)
}

func (r *renderer) openCodePart(part openCodePart) {
	switch {
	case part.Type == "tool":
		r.tool(part)
	case part.Type != "text" && part.Type != "reasoning":
	case r.roles[part.MessageID] == "user":
		if p := r.part(part.ID); !p.done && !r.submitted[part.MessageID] && !part.Synthetic {
			p.done = true
			r.userText(part.SessionID, clipped(part.Text, maxOutputLines))
		}
	default:
		r.setPart(r.part(part.ID), part)
	}
}

// maxOutputLines is how much of a tool's output is shown; a command's is shown whole, up to maxLiveOutput.
const maxOutputLines = 12

// tool shows a tool call when it begins and when it has ended. A command begins when the sandbox runs it.
func (r *renderer) tool(part openCodePart) {
	if r.tools[part.ID] == part.State.Status {
		return
	}
	before := r.tools[part.ID]
	r.tools[part.ID] = part.State.Status
	r.inputs[part.SessionID+"/"+part.CallID] = part.State.Input
	switch part.State.Status {
	case "running":
		if part.Tool != "bash" && part.Tool != "question" && part.Tool != "todowrite" {
			r.note(part.SessionID, bold, "● %s %s", part.Tool, toolSummary(part))
		}
	case "completed":
		r.toolCompleted(part, before)
	case "error":
		if a := r.askOf(part.SessionID, part.CallID); a == nil || !a.denied {
			r.note(part.SessionID, red, "✗ %s: %s", strings.TrimSpace(part.Tool+" "+toolSummary(part)), part.State.Error)
		}
	}
}

// toolCompleted leaves out what executions, subagents and questions show themselves.
func (r *renderer) toolCompleted(part openCodePart, before string) {
	switch {
	case r.calls[part.SessionID+"/"+part.CallID] != nil, part.Tool == "question", part.Tool == "task":
	case part.Tool == "todowrite" && r.todo(part):
	case part.Tool == "bash":
		r.note(part.SessionID, bold, "$ %s", toolArgument(part.State.Input, "command"))
		r.toolOutput(part.SessionID, part.State.Output)
	default:
		if before != "running" {
			r.note(part.SessionID, bold, "● %s %s", part.Tool, toolSummary(part))
		}
		r.toolResult(part)
	}
}

// toolResult shows what a tool gave: what it changed, unless that was asked for, or its output.
func (r *renderer) toolResult(part openCodePart) {
	a := r.askOf(part.SessionID, part.CallID)
	switch {
	case part.State.Metadata.Diff == "":
		r.toolOutput(part.SessionID, part.State.Output)
	case a == nil || !a.shown:
		r.diff(part.SessionID, part.State.Metadata.Diff)
	}
}

// todo shows the model's list of what is to be done, and reports whether the call has one.
func (r *renderer) todo(part openCodePart) bool {
	var list struct {
		Todos []struct{ Content, Status string }
	}
	if json.Unmarshal(part.State.Input, &list) != nil || len(list.Todos) == 0 {
		return false
	}
	r.note(part.SessionID, bold, "● todo")
	for _, item := range list.Todos {
		mark, st := "☐", plain
		switch item.Status {
		case "completed":
			mark, st = "☑", dim
		case "in_progress":
			mark, st = "▶", bold
		case "cancelled":
			mark, st = "☒", dim
		}
		r.note(part.SessionID, st, "  %s %s", mark, oneLine(item.Content, 200))
	}
	return true
}

func (r *renderer) toolOutput(session, output string) {
	if output != "" {
		r.line(r.indent(session)+"  ", dim, cleaned(clipped(output, maxOutputLines)))
	}
}

// toolArguments are those that say in a word what a call is about, the best first.
var toolArguments = []string{"command", "filePath", "path", "pattern", "url", "description", "name"}

func toolSummary(part openCodePart) string {
	for _, name := range toolArguments {
		if text := toolArgument(part.State.Input, name); text != "" {
			return oneLine(text, 120)
		}
	}
	if input := string(part.State.Input); input != "{}" {
		return oneLine(input, 120)
	}
	return ""
}
