// Package mcpstate returns the states of MCP servers, their last calls and their connections.
//
// Promises: the command line, the API and the page show the same. The package only reads.
//
// It must not know how a server is started or called.
package mcpstate

import (
	"context"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/record"
	"pocketcoder/projections"
)

// State is how an MCP server works now.
type State struct {
	State       string               `json:"state"` // its status; active if it is approved and works
	Problem     string               `json:"problem,omitempty"`
	LastCall    *Call                `json:"last_call,omitempty"`
	Connections []network.Connection `json:"connections"` // of the last seven days
}

// Call is a call of a tool of an MCP server.
type Call struct {
	Tool       string `json:"tool"`             // as the server names it
	Called     string `json:"called"`           // when
	State      string `json:"state"`            // running, completed or failed
	Result     string `json:"result,omitempty"` // the beginning of its text, or why there is no result
	DurationMS int64  `json:"duration_ms"`
	Chat       string `json:"chat,omitempty"` // empty if the chat was deleted
}

// Servers reads how the MCP servers work.
type Servers struct {
	Records *record.Records
	Model   *projections.Model
}

// Of is the query for the state of one server.
type Of struct {
	Record string `json:"record"`
}

func (s Servers) One(ctx context.Context, q Of) (State, error) {
	if _, err := events.ParseID(q.Record); err != nil {
		return State{}, unknown(q.Record)
	}
	all, err := s.read(ctx, q.Record)
	if err != nil {
		return State{}, err
	}
	state, found := all[q.Record]
	if !found {
		return State{}, unknown(q.Record)
	}
	return state, nil
}

func unknown(id string) error {
	return handlers.Refuse(handlers.NotFound, "There is no MCP server with the record %q.", id)
}

// All returns the states of all servers, by record.
func (s Servers) All(ctx context.Context) (map[string]State, error) { return s.read(ctx, "*") }

func (s Servers) read(ctx context.Context, id string) (map[string]State, error) {
	servers, err := mcpserver.All(ctx, s.Records)
	if err != nil {
		return nil, err
	}
	connections, err := network.Connections(ctx, s.Records.Log, id)
	if err != nil {
		return nil, err
	}
	calls, err := s.Model.LastMCPCalls(ctx)
	states := map[string]State{}
	for _, one := range servers {
		state := State{State: one.State(), Problem: one.Problem,
			Connections: append([]network.Connection{}, connections[one.ID]...)}
		if c, called := calls[one.ID]; called {
			state.LastCall = &Call{c.Tool, c.Created, c.State, c.Result, c.DurationMS, c.Chat}
		}
		states[one.ID] = state
	}
	return states, err
}
