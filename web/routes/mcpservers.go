package routes

import (
	"net/http"

	"pocketcoder/web/api"
	"pocketcoder/web/mcpstate"
)

// Servers returns how the MCP servers work.
func (s Agents) Servers() mcpstate.Servers {
	return mcpstate.Servers{Records: s.Files.Records, Model: s.API.Model}
}

func (s Agents) server(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
	one, err := s.Servers().One(r.Context(), mcpstate.Of{Record: r.PathValue("id")})
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, one)
}
