package main

import (
	"encoding/json"
	"strings"

	"pocketcoder/events"
)

// openCodePart is what is shown of a part of OpenCode's messages.
type openCodePart struct {
	ID, MessageID, SessionID string
	Type                     string // text, reasoning, tool; others are not shown
	Text                     string
	Synthetic                bool
	Time                     struct{ End int64 }
	Tool, CallID             string
	State                    toolState
}

// toolState is how a tool call stands.
type toolState struct {
	Status   string // pending, running, completed, error
	Input    json.RawMessage
	Output   string
	Error    string
	Title    string
	Metadata struct{ Diff string }
}

// openCodePayload is what is shown of the other payloads.
type openCodePayload struct {
	ID        string // of a request or question
	SessionID string
	Info      struct {
		ID, Role, ParentID, Title, Agent, Directory string
	}
	Part      openCodePart
	Status    openCodeStatus
	Error     openCodeError
	MessageID string // of message.removed
	PartID    string
	RequestID string
	Reply     string
	Answers   [][]string
}

type openCodeStatus struct {
	Type, Message string
	Attempt       int
}

type openCodeError struct {
	Name string
	Data struct{ Message string }
}

func (e openCodeError) String() string {
	message, _, _ := strings.Cut(e.Data.Message, "\n") // a stack trace may follow
	if message == "" {
		return e.Name
	}
	return message
}

// abortedError is the name OpenCode gives to what happens when a person stops a turn.
const abortedError = "MessageAbortedError"

// readOpenCode reads a payload. A payload of another shape gives what could be read of it: what is not understood is not
// shown, and stays in the log.
func readOpenCode(d events.OpenCode) openCodePayload {
	var p openCodePayload
	_ = json.Unmarshal(d.Properties, &p)
	return p
}

func toolArgument(input json.RawMessage, name string) string {
	var all map[string]any
	_ = json.Unmarshal(input, &all) // no object has no arguments
	text, _ := all[name].(string)
	return text
}
