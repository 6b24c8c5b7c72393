package render

import (
	"encoding/json"
	"fmt"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers/policy/display"
)

func (r *Renderer) openCode(e events.Event, d events.OpenCode) {
	switch d.Type {
	case events.PermissionAsked:
		var content events.PermissionRequest
		if json.Unmarshal(d.Properties, &content) == nil {
			r.AddRequest(content, e.Seq)
		}
		return
	case events.QuestionAsked:
		var content events.QuestionRequest
		if json.Unmarshal(d.Properties, &content) == nil {
			r.addQuestions(content)
		}
		return
	}
	p := ReadPayload(d)
	switch d.Type {
	case "session.created", "session.updated":
		r.session(p)
	case "session.status":
		if p.Status.Type == "retry" {
			r.retry(p)
		}
	case "session.error":
		if p.Error.Aborted() {
			r.stopped[p.SessionID] = true
			r.showStopped(p.SessionID)
		} else {
			r.Note(p.SessionID, Red, "error: %s", p.Error)
			if p.Error.Refused() {
				r.Note(p.SessionID, Dim, "(if a file is the cause, /omit leaves it out of the next message)")
			}
		}
	case "session.compacted":
		r.Note(p.SessionID, Dim, "(earlier messages were summarised to save space)")
	case "message.updated":
		r.roles[p.Info.ID] = p.Info.Role
	case "message.part.updated":
		r.openCodePart(p.Part)
	case "message.removed":
		r.Note(p.SessionID, Dim, "(a message was removed)")
	case events.PermissionReplied:
		r.replied(p)
	case events.QuestionReplied, events.QuestionRejected:
		r.questionReplied(p)
	}
}

// retry shows why OpenCode waits for the provider. A live renderer also says how to stop waiting.
func (r *Renderer) retry(p Payload) {
	text := fmt.Sprintf("the model provider failed, attempt %d: %s", p.Status.Attempt, p.Status.Message)
	if next := p.Status.NextTry(); !next.IsZero() {
		text += "; next try at " + next.Local().Format("2006-01-02 15:04:05")
	}
	if r.Live {
		text += " (Ctrl-C or /stop ends the turn)"
	}
	r.Note(p.SessionID, Yellow, "%s", text)
	if r.Live && p.Status.MayBeFile() {
		r.Note(p.SessionID, Dim, "(if a file is the cause, stop the turn; /omit then leaves it out of the next message)")
	}
}

// addQuestions shows questions. A live renderer leaves that to the conversation, which shows each question in turn.
func (r *Renderer) addQuestions(content events.QuestionRequest) {
	if r.Live {
		return
	}
	for _, q := range Questions(content) {
		r.ShowQuestion(q)
	}
}

// session places a session in the tree.
func (r *Renderer) session(p Payload) {
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
	r.Note(p.Info.ParentID, Cyan, "↳ subagent %s: %s", p.Info.Agent, p.Info.Title)
}

func (r *Renderer) openCodePart(part Part) {
	switch {
	case part.Type == "tool":
		r.tool(part)
	case part.Type != "text" && part.Type != "reasoning":
	case r.roles[part.MessageID] == "user":
		if p := r.part(part.ID); !p.done && !r.submitted[part.MessageID] && !part.Synthetic {
			p.done = true
			r.userText(part.SessionID, display.FirstLines(part.Text, maxOutputLines))
		}
	default:
		r.setPart(r.part(part.ID), part)
	}
}

// maxOutputLines is how much of a tool's output is shown; a command's is shown whole, up to maxLiveOutput.
const maxOutputLines = 12

// tool shows a tool call when it begins and when it has ended. A command begins when the sandbox runs it.
func (r *Renderer) tool(part Part) {
	if r.tools[part.ID] == part.State.Status {
		return
	}
	before := r.tools[part.ID]
	r.tools[part.ID] = part.State.Status
	r.inputs[part.SessionID+"/"+part.CallID] = part.State.Input
	switch part.State.Status {
	case "running":
		if part.Tool != events.KindBash && part.Tool != events.KindQuestion && part.Tool != events.KindTodowrite {
			r.Note(part.SessionID, Bold, "● %s %s", part.Tool, toolSummary(part))
		}
	case "completed":
		r.toolCompleted(part, before)
	case "error":
		if a := r.requestOfCall(part.SessionID, part.CallID); a == nil || !a.denied {
			r.Note(part.SessionID, Red, "✗ %s: %s", strings.TrimSpace(part.Tool+" "+toolSummary(part)), part.State.Error)
		}
	}
}

// toolCompleted leaves out what executions, subagents and questions show themselves.
func (r *Renderer) toolCompleted(part Part, before string) {
	switch {
	case r.calls[part.SessionID+"/"+part.CallID] != nil, part.Tool == events.KindQuestion, part.Tool == events.KindTask:
	case part.Tool == events.KindTodowrite && r.todo(part):
	case part.Tool == events.KindBash:
		r.Note(part.SessionID, Bold, "$ %s", argument(part.State.Input, "command"))
		r.toolOutput(part.SessionID, part.State.Output)
	default:
		if before != "running" {
			r.Note(part.SessionID, Bold, "● %s %s", part.Tool, toolSummary(part))
		}
		r.toolResult(part)
	}
}

// toolResult shows what a tool gave: what it changed, unless that was asked for, or its output.
func (r *Renderer) toolResult(part Part) {
	a := r.requestOfCall(part.SessionID, part.CallID)
	switch {
	case part.State.Metadata.Diff == "":
		r.toolOutput(part.SessionID, part.State.Output)
	case a == nil || !a.Shown:
		r.diff(part.SessionID, part.State.Metadata.Diff)
	}
}

// todo shows the model's todo list, and reports whether the call has one.
func (r *Renderer) todo(part Part) bool {
	var list struct {
		Todos []struct{ Content, Status string }
	}
	if json.Unmarshal(part.State.Input, &list) != nil || len(list.Todos) == 0 {
		return false
	}
	r.Note(part.SessionID, Bold, "● todo")
	for _, item := range list.Todos {
		mark, st := "☐", Plain
		switch item.Status {
		case "completed":
			mark, st = "☑", Dim
		case "in_progress":
			mark, st = "▶", Bold
		case "cancelled":
			mark, st = "☒", Dim
		}
		r.Note(part.SessionID, st, "  %s %s", mark, display.OneLine(item.Content, 200))
	}
	return true
}

func (r *Renderer) toolOutput(session, output string) {
	if output != "" {
		r.Line(r.indent(session)+"  ", Dim, display.Clean(display.FirstLines(output, maxOutputLines)))
	}
}

// toolArguments are those that say in a word what a call is about, the best first.
var toolArguments = []string{"command", "filePath", "path", "pattern", "url", "description", "name", "question",
	"message", "worker"}

func toolSummary(part Part) string {
	for _, name := range toolArguments {
		if text := argument(part.State.Input, name); text != "" {
			return display.OneLine(text, 120)
		}
	}
	if input := string(part.State.Input); input != "{}" {
		return display.OneLine(input, 120)
	}
	return ""
}
