package events

import (
	"encoding/json"
	"fmt"
)

// A form is the JSON layout of a kind's body. Its version is stored in the header ce-dataversion. An optional field
// needs no new version. For any other change, append to upcasts a function that converts the form before. Readers
// receive the newest form. Events without the header have form 0.

// upcasts converts forms of our own kinds: the function at index n converts form n to form n+1. A kind that is not
// listed has form 1, which is the same as form 0: when it changes for the first time, its list begins with a function
// that returns its argument.
var upcasts = map[string][]func(json.RawMessage) (json.RawMessage, error){
	ExecFinished{}.Kind(): {addExecutionStatus},
}

// newestForm returns the version of the form in which a kind of our own is stored now.
func newestForm(kind string) int { return max(1, len(upcasts[kind])) }

// openCodeForms are the newest forms of OpenCode's durable events that the package events/opencode decodes. PocketCoder
// does not read the bodies of other types, so these may have any form.
var openCodeForms = map[string]int{
	"session.created": 1, "session.updated": 1, "session.deleted": 1,
	"message.updated": 1, "message.removed": 1, "message.part.updated": 1, "message.part.removed": 1,
}

// upcast converts a stored form of a kind to the newest one. It returns an error if the form is newer than this program
// knows.
func upcast(s Subject, form int, data json.RawMessage) (json.RawMessage, error) {
	newest, known := newestForm(s.Kind), true
	if typ, ok := s.OpenCodeType(); ok {
		newest, known = openCodeForms[typ]
	}
	if known && form > newest {
		return nil, fmt.Errorf("form %d is newer than %d, the newest this PocketCoder reads", form, newest)
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
	return json.Marshal(d) // MarshalJSON sets the status
}
