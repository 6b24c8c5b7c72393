// Package handlers turns commands into events. It has what the packages below it share: commands and refusals, the
// loop that folds, decides and appends, transactions, and commands between the nodes of a cluster.
//
// A command is a request to change state and may be refused. Its handler folds what it needs to know from the log,
// decides, and appends with the expected last sequence. On a conflict it reads and decides again. The first writer
// wins.
//
// Promises: a decision is made from the log, not from a read model, so neither a rebuild nor a lag changes one; the
// package that makes an exception says so. Commands are idempotent by ID: a repeated command changes nothing and
// returns the sequence of the first one. A refused command changes nothing and returns a reason for a person (Refused).
// A transaction carries out all of its commands or none.
//
// It must not know HTTP, SQLite, or how OpenCode is spoken to. The only aggregate that it knows is a chat: whether it
// exists, its owner, its project, its agent and the chat that limits its rights (ChatState).
package handlers

import (
	"context"
	"errors"
	"fmt"
)

// Code is the reason for which a command was refused. Callers map it to a status.
type Code string

const (
	Invalid  Code = "invalid"   // the command makes no sense
	NotFound Code = "not_found" // what it is about does not exist
	Conflict Code = "conflict"  // it came too late, or contradicts what is decided

	Unavailable Code = "unavailable" // the log (log.Unavailable) or OpenCode does not answer at present
)

// Refused is the error of a refused command. Text is a whole sentence for the person who sent the command. Field names
// the invalid field of the record (id is the record's own); it is empty if no single field is invalid.
type Refused struct {
	Code  Code
	Text  string
	Field string `json:"field,omitempty"`
}

func (r Refused) Error() string { return r.Text }

// Refuse returns a Refused about no field in particular.
func Refuse(code Code, format string, args ...any) error {
	return RefuseField(code, "", format, args...)
}

// RefuseField returns a Refused about a field.
func RefuseField(code Code, field, format string, args ...any) error {
	return Refused{Code: code, Text: fmt.Sprintf(format, args...), Field: field}
}

// CodeOf returns the code of a Refused. It returns "" for nil and for every other error.
func CodeOf(err error) Code {
	var r Refused
	errors.As(err, &r)
	return r.Code
}

// Command holds the fields that every command has. The caller makes ID: a second command with the same ID has no
// further effect. ID is empty for a command that is never repeated.
type Command struct {
	ID    string `json:"id,omitempty"`
	Actor string `json:"-"`
	Cause string `json:"-"` // the event that led to a command without an ID
}

// RunAll runs functions until one of them returns, and then stops the others. It returns the first result.
func RunAll(ctx context.Context, loops ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(loops))
	for _, work := range loops {
		go func() { ended <- work(ctx) }()
	}
	err := <-ended
	cancel()
	for range len(loops) - 1 {
		<-ended
	}
	return err
}
