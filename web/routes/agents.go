package routes

import (
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"pocketcoder/handlers"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/proposal"
	"pocketcoder/web/api"
)

// Agents serves agents as files, imports them, and serves the versions of their note. It also serves how the MCP
// servers work. Every account can read an agent, its prompt and its rules, as in the collections. Only administrators
// import one. Administrators and agents read the versions of notes, and administrators restore them.
type Agents struct {
	API   *api.Server
	Files agent.Agents
	Notes agent.Notes

	Proposals proposal.Proposals
}

// AgentPath returns the path at which an agent is exported.
func AgentPath(agent string) string { return "/api/agents/" + url.PathEscape(agent) + "/export" }

func (s Agents) Routes() []api.Route {
	return []api.Route{{Method: "POST", Path: "/api/agents/import", About: "Create an agent from Markdown with front matter in OpenCode's format, or change the agent of its name. The answer has the change as a diff.", Access: api.Admins, Body: importRequest{}, Answer: agent.Imported{}, Serve: s.importFile},
		{Method: "GET", Path: "/api/agents/{id}/export", About: "An agent, with its prompt and its rules, as Markdown with front matter in OpenCode's format. It is named by its record or its name.", Access: api.Accounts, Media: agentMedia, Serve: s.export},
		{Method: "GET", Path: "/api/procedures", About: "The sealed procedures, and what is wrong with the file of the skill of each.", Access: api.Accounts, Answer: []proposal.Stored{}, Serve: s.procedures},
		{Method: "GET", Path: "/api/proposals/{id}", About: "A proposal, with what its approval would change: the difference, and the rights that an agent would gain.", Access: api.Accounts, Answer: proposal.Stored{}, Serve: s.proposal},
		{Method: "GET", Path: "/api/mcp/{id}", About: "The state of an MCP server, its problem, its last call, and the hosts that it reached or was refused within seven days. It is named by its record.", Access: api.Staff, Answer: MCPState{}, Serve: s.server},
		{Method: "GET", Path: notesPath, About: "The newest versions of a note of an agent, the newest first.", Access: api.Staff, Query: ofProject, Answer: []agent.NoteVersion{}, Serve: s.versions},
		{Method: "GET", Path: notesPath + "/{version}", About: "The content of a version of a note.", Access: api.Staff, Query: ofProject, Answer: agent.NoteContent{}, Serve: s.version},
		{Method: "POST", Path: notesPath + "/{version}/restore", About: "Make an earlier version of a note the current one.", Access: api.Admins, Query: ofProject, Serve: s.restore}}
}

const notesPath = "/api/agents/{id}/notes/{name}/versions"

// ofProject is the parameter of the routes of notes.
var ofProject = []api.Param{{Name: "project", About: "record of the project; the first project when absent"}}

type importRequest struct {
	Text  string  `json:"text"`
	Name  string  `json:"name,omitempty"`  // of the agent, if the text has no key name
	Base  *string `json:"base,omitempty"`  // the import is refused if the agent's file is another one by now
	Check bool    `json:"check,omitempty"` // return the change without making it
}

func (s Agents) importFile(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	var body importRequest
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	done, err := s.Files.Import(r.Context(), agent.Import{Command: handlers.Command{Actor: caller.Actor()},
		Text: body.Text, Name: body.Name, Base: body.Base, Check: body.Check})
	if err != nil {
		return err
	}
	if err := s.API.Model.Wait(r.Context(), done.Seq); err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, done)
}

const agentMedia = "text/markdown"

func (s Agents) export(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
	e, err := s.Files.Export(r.Context(), agent.Export{Name: r.PathValue("id")})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", agentMedia+"; charset=utf-8")
	name := map[string]string{"filename": agentFileName(e.Name)}
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", name))
	_, err = w.Write([]byte(e.Text))
	return err
}

func agentFileName(agent string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>|`, r) || r < ' ' {
			return '-'
		}
		return r
	}, agent) + ".md"
}

func (s Agents) procedures(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
	all, err := s.Proposals.Procedures(r.Context())
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, append([]proposal.Stored{}, all...))
}

func (s Agents) proposal(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
	one, err := s.Proposals.One(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, one)
}

// noteIn returns the note that a path and its query name.
func noteIn(r *http.Request) agent.NoteName {
	return agent.NoteName{Agent: r.PathValue("id"), Project: r.URL.Query().Get("project"), Name: r.PathValue("name")}
}

func versionIn(r *http.Request) (uint64, error) {
	version, err := strconv.ParseUint(r.PathValue("version"), 10, 64)
	if err != nil || version == 0 {
		return 0, api.NotFound()
	}
	return version, nil
}

func (s Agents) versions(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
	all, err := s.Notes.Versions(r.Context(), noteIn(r))
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, all)
}

func (s Agents) version(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
	version, err := versionIn(r)
	if err != nil {
		return err
	}
	content, err := s.Notes.Read(r.Context(), agent.ReadNote{NoteName: noteIn(r), Version: version})
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, content)
}

func (s Agents) restore(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	if err := s.Restore(r, caller, noteIn(r)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Restore makes the version that a path names the current one.
func (s Agents) Restore(r *http.Request, caller api.Caller, of agent.NoteName) error {
	version, err := versionIn(r)
	if err != nil {
		return err
	}
	_, seq, err := s.Notes.Restore(r.Context(), agent.RestoreNote{Command: handlers.Command{Actor: caller.Actor()},
		NoteName: of, Version: version})
	if err != nil {
		return err
	}
	return s.API.Model.Wait(r.Context(), seq)
}
