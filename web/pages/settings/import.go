package settings

import (
	"net/http"

	"github.com/a-h/templ"

	"pocketcoder/handlers"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/rule"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

// importPath is the path at which an agent is imported. The page for its changes is at importPath + "/check".
const importPath = "/settings/ai_agents/import"

// checkImport shows what the import of an agent would change.
func (s Settings) checkImport(r *http.Request, caller api.Caller) (templ.Component, error) {
	if err := api.Admins(caller); err != nil {
		return nil, err
	}
	text := site.Field(r, "text")
	checked, err := s.Agents.Files.Import(r.Context(), agent.Import{Text: text, Check: true})
	return importPage(text, checked), err
}

// importAgent imports an agent as it was shown. It is refused if the agent has changed since.
func (s Settings) importAgent(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	if err := api.Admins(caller); err != nil {
		return "", err
	}
	before := site.Field(r, "before")
	done, err := s.Agents.Files.Import(r.Context(), agent.Import{Command: handlers.Command{Actor: caller.Actor()},
		Text: site.Field(r, "text"), Base: &before})
	if err != nil {
		return "", err
	}
	return path(rule.Agents), s.API.Model.Wait(r.Context(), done.Seq)
}
