package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aymanbagabas/go-udiff"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/record"
)

// Notes stores notes as configuration records. Both fields must be set.
type Notes struct {
	Log     *log.Log
	Records *record.Records
}

// ListNotes requests the notes of an agent.
type ListNotes struct {
	Agent   string `json:"agent"`             // name or record
	Project string `json:"project,omitempty"` // record; empty for the first project
}

type ListedNote struct {
	Name string `json:"name"`
	Size int    `json:"size"` // bytes
}

// NoteName names a note.
type NoteName struct {
	Agent   string `json:"agent"`             // name or record
	Project string `json:"project,omitempty"` // record; empty for the first project
	Name    string `json:"name"`
}

type NoteVersion struct {
	_ struct{} `form:"Version"`

	Version uint64    `json:"version"` // sequence of its event
	Time    time.Time `json:"time"`
	Actor   string    `json:"actor"`
	Size    int       `json:"size"` // bytes
	Deleted bool      `json:"deleted,omitempty"`

	content string
}

// ReadNote requests the content of a note.
type ReadNote struct {
	NoteName
	Version uint64 `json:"version,omitempty"` // 0 for the current one
}

type NoteContent struct {
	_ struct{} `form:"Content"`

	Version uint64 `json:"version"`
	Content string `json:"content"`
}

// SaveNote writes a note, new or not.
type SaveNote struct {
	handlers.Command
	NoteName
	Content string `json:"content"`
}

// RestoreNote writes the content of an earlier version.
type RestoreNote struct {
	handlers.Command
	NoteName
	Version uint64 `json:"version"`
}

// DeleteNote deletes a note. Its versions stay.
type DeleteNote struct {
	handlers.Command
	NoteName
}

// List lists the notes of an agent in a project by name.
func (h Notes) List(ctx context.Context, q ListNotes) ([]ListedNote, error) {
	of, err := h.note(ctx, NoteName{Agent: q.Agent, Project: q.Project})
	if err != nil {
		return nil, err
	}
	all, err := record.All[Note](ctx, h.Records, NotesCollection)
	list := []ListedNote{}
	for _, r := range all {
		if r.Value.Agent == of.Agent && r.Value.ProjectID() == of.ProjectID() {
			list = append(list, ListedNote{r.Value.Name, len(r.Value.Content)})
		}
	}
	slices.SortFunc(list, func(a, b ListedNote) int { return strings.Compare(a.Name, b.Name) })
	return list, err
}

// maxNoteVersions bounds a list of versions.
const maxNoteVersions = 500

// Versions lists the newest versions of a note, the newest first.
func (h Notes) Versions(ctx context.Context, q NoteName) ([]NoteVersion, error) {
	all, err := h.versions(ctx, q)
	return all[:min(len(all), maxNoteVersions)], err
}

// NoteChange is a version, and its difference to the version before.
type NoteChange struct {
	NoteVersion
	Difference string
}

// Changes lists the newest versions of a note with their differences, at most most, the newest first.
func (h Notes) Changes(ctx context.Context, of NoteName, most int) (list []NoteChange, err error) {
	all, err := h.versions(ctx, of)
	for i, v := range all[:min(len(all), most)] {
		before := ""
		if i+1 < len(all) {
			before = all[i+1].content
		}
		list = append(list, NoteChange{v, udiff.Unified("before", "after", before, v.content)})
	}
	return list, err
}

// versions returns the versions of a note that can be read, the newest first.
func (h Notes) versions(ctx context.Context, of NoteName) (all []NoteVersion, err error) {
	n, err := h.note(ctx, of)
	if err != nil {
		return nil, err
	}
	_, err = h.Log.Fold(ctx, events.ConfigSubject(NotesCollection, n.ID(), "*"), 0, func(e events.Event) error {
		d, err := events.Decode(e)
		if err != nil {
			return nil
		}
		v, saved := NoteVersion{Version: e.Seq, Time: e.Time, Actor: e.Actor, Deleted: true}, Note{}
		if s, ok := d.(events.Saved); ok && json.Unmarshal(s.Fields, &saved) == nil {
			v.Deleted, v.content, v.Size = false, saved.Content, len(saved.Content)
		}
		all = append(all, v)
		return nil
	})
	if err == nil && len(all) == 0 {
		err = handlers.Refuse(handlers.NotFound, "The agent %s has no note %q.", of.Agent, of.Name)
	}
	slices.Reverse(all)
	return all, err
}

func (h Notes) Read(ctx context.Context, q ReadNote) (NoteContent, error) {
	all, err := h.versions(ctx, q.NoteName)
	if err != nil {
		return NoteContent{}, err
	}
	i := slices.IndexFunc(all, func(v NoteVersion) bool { return v.Version == cmp.Or(q.Version, all[0].Version) })
	if i < 0 {
		return NoteContent{}, handlers.RefuseField(handlers.NotFound, "version", "The note %s has no version %d.", q.Name,
			q.Version)
	}
	if all[i].Deleted {
		return NoteContent{}, handlers.Refuse(handlers.NotFound, "The note %s is deleted. Its earlier versions can be restored.", q.Name)
	}
	return NoteContent{Version: all[i].Version, Content: all[i].content}, nil
}

// Save creates the note if it does not exist.
func (h Notes) Save(ctx context.Context, c SaveNote) (id string, seq uint64, err error) {
	n, err := h.note(ctx, c.NoteName)
	if err != nil {
		return "", 0, err
	}
	n.Content = c.Content
	all, err := record.All[struct{}](ctx, h.Records, NotesCollection)
	if err != nil {
		return "", 0, err
	}
	exists := slices.ContainsFunc(all, func(r record.StoredRecord[struct{}]) bool { return r.ID == n.ID() })
	return h.Records.Save(ctx, record.Save{Command: c.Command, Collection: NotesCollection, Record: n.ID(),
		Role: account.Admin, New: !exists,
		Set: n.Fields()})
}

// Restore saves the content of an earlier version as a new version.
func (h Notes) Restore(ctx context.Context, c RestoreNote) (id string, seq uint64, err error) {
	old, err := h.Read(ctx, ReadNote{c.NoteName, c.Version})
	if err != nil {
		return "", 0, err
	}
	return h.Save(ctx, SaveNote{c.Command, c.NoteName, old.Content})
}

// Delete keeps the versions of the note, so that Restore can bring it back.
func (h Notes) Delete(ctx context.Context, c DeleteNote) (seq uint64, err error) {
	n, err := h.note(ctx, c.NoteName)
	if err != nil {
		return 0, err
	}
	return h.Records.Delete(ctx, record.Delete{Command: c.Command, Collection: NotesCollection, Record: n.ID()})
}

// note returns a note of an agent, without its content.
func (h Notes) note(ctx context.Context, of NoteName) (Note, error) {
	id, err := h.agent(ctx, of.Agent)
	n := Note{Agent: id, Project: of.Project, Name: of.Name}
	if err != nil || n.ProjectID() == events.DefaultEngine {
		return n, err
	}
	_, found, err := record.One[project.Project](ctx, h.Records, project.Collection, n.Project)
	if err == nil && !found {
		err = handlers.RefuseField(handlers.NotFound, "project", "There is no project %.80q.", n.Project)
	}
	return n, err
}

// agent returns the record of an agent, which is named by its record or its name.
func (h Notes) agent(ctx context.Context, name string) (string, error) {
	all, err := Names(ctx, h.Records)
	if err != nil {
		return "", err
	}
	if _, known := all[name]; known {
		return name, nil
	}
	for id, known := range all {
		if known == name {
			return id, nil
		}
	}
	return "", handlers.RefuseField(handlers.NotFound, "agent", "There is no agent %q. %s", name, listed(all))
}

// listed names agents in a sentence.
func listed(all map[string]string) string {
	if len(all) == 0 {
		return "No agent is stored."
	}
	return fmt.Sprintf("The agents are: %s.", strings.Join(slices.Sorted(maps.Values(all)), ", "))
}
