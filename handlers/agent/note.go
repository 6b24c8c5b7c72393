package agent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"regexp"

	"pocketcoder/events"
	"pocketcoder/handlers/record"
)

// NotesCollection is the config collection of the notes.
const NotesCollection = "agent_notes"

// The limits of notes.
const (
	MaxNoteContent = 64 << 10 // bytes
	MaxNotes       = 100      // of an agent in a project
)

var seesNotes = record.Rule(record.SeesProject + ` || ` + record.IsStaff)

// NoteType is the type of the records of notes.
var NoteType = record.Type{Name: NotesCollection, Command: "note", Title: "Notes of agents",
	About:  "what agents remember in a project, with its versions",
	Access: record.Rules(seesNotes, seesNotes, record.Admins, record.Admins, record.Admins), Complete: completeNote,
	ID:       func(v record.Values) string { return noteOf(v).ID() },
	Defaults: map[string]any{"project": events.DefaultEngine},
	Fields: []record.Field{
		{Name: "project", Kind: record.Relation, Label: "Project", Relation: "projects", Missing: events.DefaultEngine},
		{Name: "agent", Kind: record.Relation, Label: "Agent", Relation: "ai_agents", Required: true},
		{Name: "name", Kind: record.Text, Label: "Name", Required: true},
		{Name: "content", Kind: record.Text, Label: "Text", Lines: true},
	}}

// completeNote refuses a note that cannot be a file, and a note under another id than its own: its name and its agent
// stay as they are.
func completeNote(c record.Change) error {
	n := noteOf(c.Now())
	others := 0
	for _, other := range c.Others() {
		if o := noteOf(other); o.Agent == n.Agent && o.ProjectID() == n.ProjectID() {
			others++
		}
	}
	if err := n.check(others); err != nil {
		return err
	}
	if c.Record != n.ID() {
		return record.Invalid("name",
			"The agent, the project and the name of a note cannot change. Write a new note, and delete this one.")
	}
	return nil
}

// Note is a Markdown text under a name, with which an agent remembers what it has learned in a project.
type Note struct {
	Agent   string `json:"agent"`             // record
	Project string `json:"project,omitempty"` // see ProjectID
	Name    string `json:"name"`
	Content string `json:"content"`
}

func noteOf(v record.Values) Note {
	return Note{Agent: v.Text("agent"), Project: v.Text("project"), Name: v.Text("name"), Content: v.Text("content")}
}

// Fields returns the fields of the record of a note.
func (n Note) Fields() record.Values {
	return record.Fields(map[string]any{"agent": n.Agent, "project": n.ProjectID(), "name": n.Name, "content": n.Content})
}

// ProjectID returns the id of the project. Notes that were stored before they had one belong to the first project.
func (n Note) ProjectID() string { return cmp.Or(n.Project, events.DefaultEngine) }

// ID returns the id of the record of a note. It follows from the agent, the project and the name. A note that is
// written again after it was deleted continues its history.
func (n Note) ID() string {
	key := n.Agent + "/" + n.Name
	if of := n.ProjectID(); of != events.DefaultEngine {
		key = of + "/" + key
	}
	sum := sha256.Sum256([]byte(key))
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
		return record.Invalid("name", "The agent has %d notes in the project, which is the limit. Delete one first.", others)
	}
	return nil
}
