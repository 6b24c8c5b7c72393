// Package agents serves agents as files.
//
// Promises: every account can read an agent, its prompt and its rules, as in the collections.
//
// It must not know what is in a file: agentfile writes it.
package agents

import (
	"mime"
	"net/http"
	"net/url"
	"strings"

	"pocketcoder/handlers/agentfile"
	"pocketcoder/web/api"
)

// Agents serves agents as files.
type Agents struct{ Files agentfile.Agents }

// Path returns the path at which an agent is exported.
func Path(agent string) string { return "/api/agents/" + url.PathEscape(agent) + "/export" }

func (s Agents) Routes() []api.Route {
	return []api.Route{{Method: "GET", Path: "/api/agents/{id}/export", About: "An agent, with its prompt and its rules, as Markdown with front matter in OpenCode's format. It is named by its record or its name.", Admits: api.Accounts, Media: media, Serve: s.export}}
}

const media = "text/markdown"

func (s Agents) export(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
	e, err := s.Files.Export(r.Context(), agentfile.Export{Name: r.PathValue("id")})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", media+"; charset=utf-8")
	name := map[string]string{"filename": fileName(e.Name)}
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", name))
	_, err = w.Write([]byte(e.Text))
	return err
}

// fileName returns a file name for an agent.
func fileName(agent string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>|`, r) || r < ' ' {
			return '-'
		}
		return r
	}, agent) + ".md"
}
