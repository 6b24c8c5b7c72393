package events

import (
	"encoding/json"
	"fmt"
)

// The form of a kind is the JSON of its body. A form is stored for ever, with its version in the header ce-dataversion. When a form
// must change in another way than by an optional field, its version rises, and upcasts gets the function that converts the form
// before. Readers get the newest form of every event. The events that were stored before there was such a header have form 0.

// upcasts converts forms of our own kinds: the function at index n converts form n to form n+1. A kind that is not listed has form 1,
// which is the same as form 0.
var upcasts = map[string][]func(json.RawMessage) (json.RawMessage, error){
	ExecFinished{}.Kind(): {addExecutionStatus},
}

// newestForm returns the version of the form in which a kind of our own is stored now.
func newestForm(kind string) int { return max(1, len(upcasts[kind])) }

// openCodeForms are the newest forms of OpenCode's durable events that the package events/opencode decodes. Nobody reads the body of
// another type, so it may have any form.
var openCodeForms = map[string]int{
	"session.created": 1, "session.updated": 1, "session.deleted": 1,
	"message.updated": 1, "message.removed": 1, "message.part.updated": 1, "message.part.removed": 1,
}

// Upcast converts a stored form of a kind to the newest one. It returns an error if a newer PocketCoder or OpenCode has stored it.
func Upcast(s Subject, form int, data json.RawMessage) (json.RawMessage, error) {
	newest, known := newestForm(s.Kind), true
	if typ, ok := s.OpenCodeType(); ok {
		newest, known = openCodeForms[typ]
	}
	if known && form > newest {
		return nil, fmt.Errorf("it has form %d, and this version of PocketCoder knows %d at most", form, newest)
	}
	var err error
	for _, convert := range upcasts[s.Kind][min(form, len(upcasts[s.Kind])):] {
		if data, err = convert(data); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// addExecutionStatus adds the status, which form 0 of exec.finished leaves to its readers.
func addExecutionStatus(data json.RawMessage) (json.RawMessage, error) {
	var d ExecFinished
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, err
	}
	return json.Marshal(d) // which states it
}
