package settings

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"pocketcoder/events"
	"pocketcoder/handlers/agent"
	"pocketcoder/web/api"
)

func versionsPath(id string) string { return recordPath(agent.NotesCollection, id) + "/versions" }

func versionPath(id string, version uint64) string {
	return versionsPath(id) + "/" + strconv.FormatUint(version, 10)
}

// maxVersions is the number of versions of a note that a page shows.
const maxVersions = 50

// noteIn returns the note that a path names by its record.
func (s Settings) noteIn(r *http.Request, caller api.Caller) (agent.NoteName, error) {
	found, err := s.API.Find(r.Context(), caller, agent.NotesCollection, r.PathValue("id"))
	return agent.NoteName{Agent: found.Text("agent"), Project: found.Text("project"), Name: found.Text("name")}, err
}

func (s Settings) showVersions(r *http.Request, caller api.Caller) (templ.Component, error) {
	of, err := s.noteIn(r, caller)
	if err != nil {
		return nil, err
	}
	all, err := s.Agents.Notes.Changes(r.Context(), of, maxVersions)
	return versionsPage(caller, r.PathValue("id"), of.Name, all), err
}

func (s Settings) restoreVersion(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	if err := api.Admins(caller); err != nil {
		return "", err
	}
	of, err := s.noteIn(r, caller)
	if err != nil {
		return "", err
	}
	return versionsPath(r.PathValue("id")), s.Agents.Restore(r, caller, of)
}

// authorOf names the author of a version: an account, or a file.
func authorOf(v agent.NoteVersion) string {
	if v.Actor == events.ActorSystem {
		return "a file of the agent"
	}
	return strings.TrimPrefix(v.Actor, events.UserActor(""))
}
