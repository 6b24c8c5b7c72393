package conversation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/pages/visible"
)

// part is a part of a message, of OpenCode's or as a person submitted it. It has only the fields that are shown.
type part struct {
	ID        string `json:"id"`
	Type      string `json:"type"`
	Text      string `json:"text"`
	Synthetic bool   `json:"synthetic"`
	Filename  string `json:"filename"`
	URL       string `json:"url"`
	Time      struct {
		End float64 `json:"end"`
	} `json:"time"`
	Tool     string       `json:"tool"`
	Call     string       `json:"callID"`
	State    toolState    `json:"state"`
	Metadata partMetadata `json:"metadata"`

	end *projections.CommandEnd // of the command of the call; nil if none has ended
}

type toolState struct {
	Status string          `json:"status"` // pending, running, completed, error
	Title  string          `json:"title"`
	Input  json.RawMessage `json:"input"`
	Output string          `json:"output"`
	Error  string          `json:"error"`

	Metadata partMetadata `json:"metadata"`
}

// partMetadata is what PocketCoder stored in the metadata of a part, or of a tool call's state.
type partMetadata struct {
	LeftOut string `json:"pocketcoder_left_out"` // names of files; opencode.MarkLeftOut
}

// unreadable is the type of a part that does not have the form of OpenCode's.
const unreadable = "unreadable"

// partsOf returns the parts of a message that are shown.
func partsOf(m *projections.ShownMessage) (parts []part) {
	var all []json.RawMessage
	_ = json.Unmarshal([]byte(m.Parts), &all) // the column is a list
	var ends map[string]projections.CommandEnd
	_ = json.Unmarshal([]byte(m.Commands), &ends) // the column is an object of these
	for _, raw := range all {
		var p part
		if json.Unmarshal(raw, &p) != nil {
			p = part{Type: unreadable, Text: string(raw)}
		}
		if end, ended := ends[p.Call]; ended && p.Type == "tool" {
			p.end = &end
		}
		if p.shown(m) {
			parts = append(parts, p)
		}
	}
	return parts
}

// author returns the role under which a message is shown. OpenCode stores what it adds itself, such as a compaction, as
// a message of the person.
func author(m *projections.ShownMessage, shown []part) string {
	if m.Role == "user" && !slices.ContainsFunc(shown, func(p part) bool { return p.Type != "compaction" }) {
		return "system"
	}
	return m.Role
}

func (p part) shown(m *projections.ShownMessage) bool {
	switch p.Type {
	case "text", "reasoning":
		return !p.Synthetic && (strings.TrimSpace(p.Text) != "" || p.beingWritten(m))
	case "tool", "file", "compaction", unreadable:
		return true
	}
	return false
}

// beingWritten reports whether the text of a part is still on its way. The read models get it when it is complete.
func (p part) beingWritten(m *projections.ShownMessage) bool {
	return m.EngineStatus == "processing" && p.Time.End == 0 && (p.Type == "text" || p.Type == "reasoning")
}

// download returns the URL of a file that the assistant sent, "" for any other part.
func (p part) download() string {
	if p.Type == "file" && strings.HasPrefix(p.URL, "/api/artifacts/") {
		return p.URL
	}
	return ""
}

func (p part) elementID() string { return "part-" + p.ID }

// input decodes the arguments of a tool call that summaries name.
func (s toolState) input() (in struct {
	Command, FilePath, Path, Pattern, URL, Query, Description, Prompt, Question, Message string
}) {
	_ = json.Unmarshal(s.Input, &in) // arguments of another form have no summary
	return in
}

// name names the tool of a call, with its MCP server if it has one.
func (p part) name() string {
	if server, tool, ok := mcpserver.OfPermission(p.Tool); ok {
		return visible.Line(fmt.Sprintf(site.ToolOfServer, tool, server))
	}
	return visible.Line(p.Tool)
}

// summary says in one line what a tool call is about.
func (p part) summary() string {
	in := p.State.input()
	return visible.Line(cmp.Or(p.edited(), in.Command, in.FilePath, strings.TrimSpace(in.Pattern+" "+in.Path), in.URL,
		in.Query, in.Description, in.Prompt, in.Question, in.Message, p.State.Title))
}

// edited returns the command of a call that ran in place of the model's, "" if no person has edited it.
func (p part) edited() string {
	if p.end == nil {
		return ""
	}
	return p.end.Edited
}

// arguments returns the command of a tool call, or all of its arguments.
func (p part) arguments() string {
	if command := cmp.Or(p.edited(), p.State.input().Command); command != "" {
		return command
	}
	input := p.State.Input
	var values map[string]json.RawMessage
	if strings.HasPrefix(p.Tool, events.OwnTools) && json.Unmarshal(input, &values) == nil {
		delete(values, "caller") // PocketCoder added it
		input = api.MustJSON(values)
	}
	var b bytes.Buffer
	if len(input) == 0 || json.Indent(&b, input, "", "  ") != nil || b.String() == "{}" {
		return ""
	}
	return b.String()
}

// running reports whether the part is a command that runs.
func (p part) running() bool {
	_, err := events.ParseID(p.Call)
	return p.Tool == events.KindBash && p.State.Status == "running" && err == nil
}

// maxOutput is how much of a tool's output is shown, in bytes: half of it from the beginning and half from the end.
const maxOutput = 16 << 10

// Shortened leaves out the middle of a long output, and says so.
func Shortened(output string) string {
	if len(output) <= maxOutput {
		return output
	}
	head, tail := maxOutput/2, len(output)-maxOutput/2
	for !utf8.RuneStart(output[head]) {
		head--
	}
	for !utf8.RuneStart(output[tail]) {
		tail++
	}
	return output[:head] + "\n" + fmt.Sprintf(site.LeftOut, tail-head) + "\n" + output[tail:]
}

// stateClass is the class of the mark of a tool call. The end of a command decides: OpenCode calls each completed.
func (p part) stateClass() string {
	switch {
	case p.end == nil:
		return p.State.Status
	case p.end.Status == events.ExecutionCompleted:
		return "completed"
	}
	return "error"
}

// stateMark is the sign of a tool call's state.
func (p part) stateMark() string {
	if p.end != nil {
		return site.EndMark(*p.end)
	}
	return map[string]string{"completed": "✓", "error": "✗"}[p.State.Status]
}

// stateText says in words how a tool call ended.
func (p part) stateText() string {
	if p.failed() {
		return site.EndText(*p.end)
	}
	return visible.Line(p.State.Status)
}

// failed reports whether the command of the call ended other than with exit code 0.
func (p part) failed() bool { return p.end != nil && p.end.Status != events.ExecutionCompleted }

// failure says why a message failed, "" if it did not.
func failure(m *projections.ShownMessage) string {
	if m.ErrorPayload == "" {
		return ""
	}
	name, message := projections.ErrorOf(string(m.ErrorPayload))
	if name == "MessageAbortedError" {
		return ""
	}
	return display.Prose(cmp.Or(message, "The answer failed."))
}

// ended says how the turn ended with a message, "" if the message is complete or says it itself.
func ended(m *projections.ShownMessage) string {
	switch {
	case m.EngineStatus == "aborted":
		return "Stopped."
	case failure(m) != "":
		return ""
	}
	return m.Ending.Sentence()
}

// delivery says what became of a person's message, "" for one that OpenCode has.
func delivery(m *projections.ShownMessage) string {
	switch {
	case m.Held != "":
		return display.Prose(m.Held)
	case m.UserStatus == "pending", m.UserStatus == "sending":
		return "Queued."
	}
	return display.Prose(m.Notice)
}

// noteTitle says what a message that PocketCoder wrote is about.
func noteTitle(m *projections.ShownMessage) string {
	if m.Reports != "" && m.Reports != "[]" {
		return "A report on the delegates of this chat."
	}
	return "PocketCoder resumed the turn."
}
