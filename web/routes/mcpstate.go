package routes

import (
	"context"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/record"
	"pocketcoder/projections"
)

// MCPState is how an MCP server works now.
type MCPState struct {
	_ struct{} `form:"State"`

	State       string               `json:"state"` // its status; active if it is approved and works
	Problem     string               `json:"problem,omitempty"`
	LastCall    *MCPCall             `json:"last_call,omitempty"`
	Connections []network.Connection `json:"connections"` // of the last seven days
}

// MCPCall is a call of a tool of an MCP server.
type MCPCall struct {
	_ struct{} `form:"Call"`

	Tool       string `json:"tool"`             // as the server names it
	Called     string `json:"called"`           // when
	State      string `json:"state"`            // running, completed or failed
	Result     string `json:"result,omitempty"` // the beginning of its text, or why there is no result
	DurationMS int64  `json:"duration_ms"`
	Chat       string `json:"chat,omitempty"` // empty if the chat was deleted
}

// MCPStates reads how the MCP servers work.
type MCPStates struct {
	Records *record.Records
	Model   *projections.Model
}

// mcpStateQuery is the query for the state of one server.
type mcpStateQuery struct {
	Record string `json:"record"`
}

func (s MCPStates) One(ctx context.Context, q mcpStateQuery) (MCPState, error) {
	if _, err := events.ParseID(q.Record); err != nil {
		return MCPState{}, unknownServer(q.Record)
	}
	all, err := s.read(ctx, q.Record)
	if err != nil {
		return MCPState{}, err
	}
	state, found := all[q.Record]
	if !found {
		return MCPState{}, unknownServer(q.Record)
	}
	return state, nil
}

func unknownServer(id string) error {
	return handlers.Refuse(handlers.NotFound, "There is no MCP server with the record %q.", id)
}

// All returns the states of all servers, by record.
func (s MCPStates) All(ctx context.Context) (map[string]MCPState, error) { return s.read(ctx, "*") }

func (s MCPStates) read(ctx context.Context, id string) (map[string]MCPState, error) {
	servers, err := mcpserver.All(ctx, s.Records)
	if err != nil {
		return nil, err
	}
	connections, err := network.Connections(ctx, s.Records.Log, id)
	if err != nil {
		return nil, err
	}
	calls, err := s.Model.LastMCPCalls(ctx)
	states := map[string]MCPState{}
	for _, one := range servers {
		state := MCPState{State: one.State(), Problem: one.Problem,
			Connections: append([]network.Connection{}, connections[one.ID]...)}
		if c, called := calls[one.ID]; called {
			state.LastCall = &MCPCall{Tool: c.Tool, Called: c.Created, State: c.State, Result: c.Result,
				DurationMS: c.DurationMS, Chat: c.Chat}
		}
		states[one.ID] = state
	}
	return states, err
}
