// Package payload reads what the terminal shows of OpenCode's events.
//
// Promises: a payload of another shape gives what could be read of it: what is not understood is not shown, and stays in the log.
//
// It must not know how a payload is shown.
package payload

import (
	"encoding/json"
	"strings"

	"pocketcoder/events"
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
}

// ToolState is how a tool call stands.
type ToolState struct {
	Status   string // pending, running, completed, error
	Input    json.RawMessage
	Output   string
	Error    string
	Title    string
	Metadata struct{ Diff string }
}

// Payload is what is shown of the other payloads.
type Payload struct {
	ID        string // of a request or question
	SessionID string
	Info      struct {
		ID, Role, ParentID, Title, Agent, Directory string
	}
	Part      Part
	Status    Status
	Error     Error
	MessageID string // of message.removed
	PartID    string
	RequestID string
	Reply     string
	Answers   [][]string
}

// Status is the state of a session.
type Status struct {
	Type, Message string
	Attempt       int
}

// Error is the error of a session or message.
type Error struct {
	Name string
	Data struct{ Message string }
}

func (e Error) String() string {
	message, _, _ := strings.Cut(e.Data.Message, "\n") // a stack trace may follow
	if message == "" {
		return e.Name
	}
	return message
}

// Aborted is the name OpenCode gives to what happens when a person stops a turn.
const Aborted = "MessageAbortedError"

// Read reads a payload. A payload of another shape gives what could be read of it: what is not understood is not
// shown, and stays in the log.
func Read(d events.OpenCode) Payload {
	var p Payload
	_ = json.Unmarshal(d.Properties, &p)
	return p
}

// Argument returns an argument of a tool call, or an empty string.
func Argument(input json.RawMessage, name string) string {
	var all map[string]any
	_ = json.Unmarshal(input, &all) // no object has no arguments
	text, _ := all[name].(string)
	return text
}
