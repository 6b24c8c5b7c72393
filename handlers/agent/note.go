package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"

	"pocketcoder/handlers/record"
)

// NotesCollection is the config collection of the notes.
const NotesCollection = "agent_notes"

// The limits of notes.
const (
	MaxNoteContent = 64 << 10 // bytes
	MaxNotes       = 100      // of an agent
)

// NoteType is the type of the records of notes.
var NoteType = record.Type{Name: NotesCollection, Command: "note", Title: "Notes of agents",
	About:  "what agents remember, with its versions",
	Access: record.Rules(record.Staff, record.Staff, record.Admins, record.Admins, record.Admins), Complete: completeNote,
	ID: func(v record.Values) string { return Note{Agent: v.Text("agent"), Name: v.Text("name")}.ID() },
	Fields: []record.Field{
		{Name: "agent", Kind: record.Relation, Label: "Agent", Relation: "ai_agents", Required: true},
		{Name: "name", Kind: record.Text, Label: "Name", Required: true},
		{Name: "content", Kind: record.Text, Label: "Text", Lines: true},
	}}

// completeNote refuses a note that cannot be a file, and a note under another id than its own: its name and its agent
// stay as they are.
func completeNote(c record.Change) error {
	n := Note{Agent: c.Text("agent"), Name: c.Text("name"), Content: c.Text("content")}
	others := 0
	for _, other := range c.Others() {
		if other.Text("agent") == n.Agent {
			others++
		}
	}
	if err := n.check(others); err != nil {
		return err
	}
	if c.Record != n.ID() {
		return record.Invalid("name", "The agent and the name of a note cannot change. Write a new note, and delete this one.")
	}
	return nil
}

// Note is a Markdown text under a name, with which an agent remembers what it has learned.
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

var noteNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// check refuses a note that cannot be a file in the folder of its agent. others is the number of the agent's other
// notes.
func (n Note) check(others int) error {
	switch {
	case n.Agent == "":
		return record.Invalid("agent", "A note needs an agent.")
	case !noteNames.MatchString(n.Name):
		return record.Invalid("name", "%.80q is not a name of a note: want 1 to 64 letters, digits, - or _, not beginning with - or _.",
			n.Name)
	case len(n.Content) > MaxNoteContent:
		return record.Invalid("content", "The note has %d KiB, and at most %d KiB are stored.", (len(n.Content)+1023)>>10, MaxNoteContent>>10)
	case others >= MaxNotes:
		return record.Invalid("name", "The agent has %d notes, which is the limit. Delete one first.", others)
	}
	return nil
}
