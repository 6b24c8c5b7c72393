package render

import (
	"encoding/json"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
)

// Part is what is shown of a part of OpenCode's messages.
type Part struct {
	ID, MessageID, SessionID string
	Type                     string // text, reasoning, tool; others are not shown
	Text                     string
	Synthetic                bool
	Time                     struct{ End int64 }
	Tool, CallID             string
	State                    ToolState
	// of a patch: absolute paths of the files that changed between two snapshots
	Files []string
}

// ToolState is how a tool call stands.
type ToolState struct {
	Status   string // pending, running, completed, error
	Input    json.RawMessage
	Output   string
	Error    string
	Metadata struct{ Diff string }
}

// Payload is what is shown of the other payloads. One narrow struct serves all types, unlike in events/opencode,
// because the terminal also shows a payload that lacks ids or has a field of another type.
type Payload struct {
	SessionID string
	Info      struct {
		ID, Role, ParentID, Title, Agent, Directory string
	}
	Part      Part
	Status    Status
	Error     opencode.Error
	MessageID string // of message.removed
	PartID    string
	RequestID string
	Reply     string
	Answers   [][]string
}

// Status is the state of a session.
type Status struct {
	Type string
	opencode.Retry
}

// ReadPayload reads a payload, as far as it can be read.
func ReadPayload(d events.OpenCode) Payload {
	var p Payload
	_ = json.Unmarshal(d.Properties, &p)
	return p
}

// argument returns an argument of a tool call, or an empty string.
func argument(input json.RawMessage, name string) string {
	var all map[string]any
	_ = json.Unmarshal(input, &all) // no object has no arguments
	text, _ := all[name].(string)
	return text
}
