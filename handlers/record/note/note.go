// Package note says what a note of an agent is: a Markdown text under a name, with which the agent remembers what it
// has learned.
//
// It must not know how notes are stored, nor where their files are.
package note

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"

	"pocketcoder/handlers"
)

// Collection is the config collection of the notes.
const Collection = "agent_notes"

// The limits of notes.
const (
	MaxContent = 64 << 10 // bytes
	MaxNotes   = 100      // of an agent
)

type Note struct {
	Agent   string `json:"agent"` // record
	Name    string `json:"name"`
	Content string `json:"content"`
}

// ID returns the id of the record of a note. It follows from the agent and the name. A note that is written again after
// it was deleted continues its history.
func (n Note) ID() string {
	sum := sha256.Sum256([]byte(n.Agent + "/" + n.Name))
	return hex.EncodeToString(sum[:12])
}

var names = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// Check refuses a note that cannot be a file in the folder of its agent. others is the number of the agent's other
// notes.
func (n Note) Check(others int) error {
	refuse := func(field, format string, args ...any) error {
		return handlers.RefuseField(handlers.Invalid, field, format, args...)
	}
	switch {
	case n.Agent == "":
		return refuse("agent", "A note needs an agent.")
	case !names.MatchString(n.Name):
		return refuse("name", "%.80q is not a name of a note: want 1 to 64 letters, digits, - or _, not beginning with - or _.",
			n.Name)
	case len(n.Content) > MaxContent:
		return refuse("content", "The note has %d KiB, and at most %d KiB are stored.", (len(n.Content)+1023)>>10, MaxContent>>10)
	case others >= MaxNotes:
		return refuse("name", "The agent has %d notes, which is the limit. Delete one first.", others)
	}
	return nil
}
