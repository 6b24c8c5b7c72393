package agents

import (
	"context"
	"net/http"

	"pocketcoder/events"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/record"
	"pocketcoder/web/api"
)

// ServerCollection is the collection of MCP servers.
const ServerCollection = record.MCPServerCollection

// Server is how an MCP server works now.
type Server struct {
	State       string               `json:"state"` // its status; active if it is approved and works
	Problem     string               `json:"problem,omitempty"`
	Connections []network.Connection `json:"connections"` // of the last seven days
}

// Servers returns how the MCP servers work, by record. id may be * for all servers.
func (s Agents) Servers(ctx context.Context, id string) (map[string]Server, error) {
	all, err := s.Files.Records.MCPServers(ctx)
	if err != nil {
		return nil, err
	}
	connections, err := network.Connections(ctx, s.Notes.Log, id)
	servers := map[string]Server{}
	for _, one := range all {
		if id == "*" || id == one.ID {
			servers[one.ID] = Server{one.State(), one.Problem, append([]network.Connection{}, connections[one.ID]...)}
		}
	}
	return servers, err
}

func (s Agents) server(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
	id := r.PathValue("id")
	if _, err := events.ParseID(id); err != nil {
		return api.NotFound()
	}
	servers, err := s.Servers(r.Context(), id)
	if err != nil {
		return err
	}
	one, found := servers[id]
	if !found {
		return api.NotFound()
	}
	return api.WriteJSON(w, http.StatusOK, one)
}
