package routes

import (
	"net/http"

	"pocketcoder/web/api"
)

// Servers returns how the MCP servers work.
func (s Agents) Servers() MCPStates {
	return MCPStates{Records: s.Files.Records, Model: s.API.Model}
}

func (s Agents) server(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
	one, err := s.Servers().One(r.Context(), mcpStateQuery{Record: r.PathValue("id")})
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, one)
}
