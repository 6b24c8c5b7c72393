// Package note carries out the commands on the notes of agents, and lists the versions of a note.
//
// Promises: each version of a note is an event, and stays. A restored version is a new one with the old content.
//
// It must not know the files of the notes.
package note

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
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/record"
)

// Notes stores notes as configuration records. Both fields must be set.
type Notes struct {
	Log     *log.Log
	Records *record.Records
}

// List requests the notes of an agent.
type List struct {
	Agent string `json:"agent"` // name or record
}

type Listed struct {
	Name string `json:"name"`
	Size int    `json:"size"` // bytes
}

// Of names a note.
type Of struct {
	Agent string `json:"agent"` // name or record
	Name  string `json:"name"`
}

type Version struct {
	Version uint64    `json:"version"` // sequence of its event
	Time    time.Time `json:"time"`
	Actor   string    `json:"actor"`
	Size    int       `json:"size"` // bytes
	Deleted bool      `json:"deleted,omitempty"`

	content string
}

// Read requests the content of a note.
type Read struct {
	Of
	Version uint64 `json:"version,omitempty"` // 0 for the current one
}

type Content struct {
	Version uint64 `json:"version"`
	Content string `json:"content"`
}

// Save writes a note, new or not.
type Save struct {
	handlers.Command
	Of
	Content string `json:"content"`
}

// Restore writes the content of an earlier version.
type Restore struct {
	handlers.Command
	Of
	Version uint64 `json:"version"`
}

// Delete deletes a note. Its versions stay.
type Delete struct {
	handlers.Command
	Of
}

// List lists the notes of an agent by name.
func (h Notes) List(ctx context.Context, q List) ([]Listed, error) {
	of, err := h.agent(ctx, q.Agent)
	if err != nil {
		return nil, err
	}
	all, err := record.All[Note](ctx, h.Records, Collection)
	list := []Listed{}
	for _, r := range all {
		if r.Value.Agent == of {
			list = append(list, Listed{r.Value.Name, len(r.Value.Content)})
		}
	}
	slices.SortFunc(list, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	return list, err
}

// maxVersions bounds a list of versions.
const maxVersions = 500

// Versions lists the newest versions of a note, the newest first.
func (h Notes) Versions(ctx context.Context, q Of) ([]Version, error) {
	all, err := h.versions(ctx, q)
	return all[:min(len(all), maxVersions)], err
}

// Change is a version, and its difference to the version before.
type Change struct {
	Version
	Difference string
}

// Changes lists the newest versions of a note with their differences, at most most, the newest first.
func (h Notes) Changes(ctx context.Context, of Of, most int) (list []Change, err error) {
	all, err := h.versions(ctx, of)
	for i, v := range all[:min(len(all), most)] {
		before := ""
		if i+1 < len(all) {
			before = all[i+1].content
		}
		list = append(list, Change{v, udiff.Unified("before", "after", before, v.content)})
	}
	return list, err
}

// versions returns the versions of a note that can be read, the newest first.
func (h Notes) versions(ctx context.Context, of Of) (all []Version, err error) {
	n, err := h.note(ctx, of)
	if err != nil {
		return nil, err
	}
	_, err = h.Log.Fold(ctx, events.ConfigSubject(Collection, n.ID(), "*"), 0, func(e events.Event) error {
		d, err := events.Decode(e)
		if err != nil {
			return nil
		}
		v, saved := Version{Version: e.Seq, Time: e.Time, Actor: e.Actor, Deleted: true}, Note{}
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

func (h Notes) Read(ctx context.Context, q Read) (Content, error) {
	all, err := h.versions(ctx, q.Of)
	if err != nil {
		return Content{}, err
	}
	i := slices.IndexFunc(all, func(v Version) bool { return v.Version == cmp.Or(q.Version, all[0].Version) })
	if i < 0 {
		return Content{}, handlers.RefuseField(handlers.NotFound, "version", "The note %s has no version %d.", q.Name,
			q.Version)
	}
	if all[i].Deleted {
		return Content{}, handlers.Refuse(handlers.NotFound, "The note %s is deleted. Its earlier versions can be restored.", q.Name)
	}
	return Content{all[i].Version, all[i].content}, nil
}

// Save creates the note if it does not exist.
func (h Notes) Save(ctx context.Context, c Save) (id string, seq uint64, err error) {
	n, err := h.note(ctx, c.Of)
	if err != nil {
		return "", 0, err
	}
	n.Content = c.Content
	all, err := record.All[struct{}](ctx, h.Records, Collection)
	if err != nil {
		return "", 0, err
	}
	exists := slices.ContainsFunc(all, func(r record.StoredRecord[struct{}]) bool { return r.ID == n.ID() })
	return h.Records.Save(ctx, record.Save{Command: c.Command, Collection: Collection, Record: n.ID(),
		Role: account.Admin, New: !exists,
		Set: record.Fields(map[string]any{"agent": n.Agent, "name": n.Name, "content": n.Content})})
}

// Restore saves the content of an earlier version as a new version.
func (h Notes) Restore(ctx context.Context, c Restore) (id string, seq uint64, err error) {
	old, err := h.Read(ctx, Read{c.Of, c.Version})
	if err != nil {
		return "", 0, err
	}
	return h.Save(ctx, Save{c.Command, c.Of, old.Content})
}

// Delete keeps the versions of the note, so that Restore can bring it back.
func (h Notes) Delete(ctx context.Context, c Delete) (seq uint64, err error) {
	n, err := h.note(ctx, c.Of)
	if err != nil {
		return 0, err
	}
	return h.Records.Delete(ctx, record.Delete{Command: c.Command, Collection: Collection, Record: n.ID()})
}

// note returns a note of an agent, without its content.
func (h Notes) note(ctx context.Context, of Of) (Note, error) {
	id, err := h.agent(ctx, of.Agent)
	return Note{Agent: id, Name: of.Name}, err
}

// agent returns the record of an agent, which is named by its record or its name.
func (h Notes) agent(ctx context.Context, name string) (string, error) {
	all, err := agent.Names(ctx, h.Records)
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
