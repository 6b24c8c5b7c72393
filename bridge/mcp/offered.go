package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pocketcoder/bridge/mcp/gateway"
	"pocketcoder/handlers"
)

// Offer replaces the tools of other MCP servers that are offered to the model. OpenCode is notified.
func (s *Server) Offer(tools []gateway.Tool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.offered
	s.offered = tools
	if s.start != nil {
		s.replace(s.start, before)
	}
}

// replace replaces the offered tools of a start. s.mu must be held.
func (s *Server) replace(of *start, before []gateway.Tool) {
	var gone []string
	for _, t := range before {
		if !slices.ContainsFunc(s.offered, func(now gateway.Tool) bool { return now.Name == t.Name }) {
			gone = append(gone, t.Name)
		}
	}
	if len(gone) > 0 {
		of.server.RemoveTools(gone...)
	}
	for _, t := range s.offered {
		same := func(b gateway.Tool) bool { return b.Name == t.Name && b.SHA256 == t.SHA256 }
		if !slices.ContainsFunc(before, same) {
			of.server.AddTool(&mcp.Tool{Name: t.Name, Description: t.Description, InputSchema: withCaller(t.InputSchema)},
				s.forward(of, t.Name))
		}
	}
}

// withCaller returns an input schema with the argument that the plugin adds.
func withCaller(schema json.RawMessage) map[string]any {
	var s map[string]any
	_ = json.Unmarshal(schema, &s) // it was checked
	if s == nil {
		s = map[string]any{}
	}
	properties, _ := s["properties"].(map[string]any)
	if properties == nil {
		properties = map[string]any{}
	}
	properties["caller"] = callerArgument
	s["type"], s["properties"] = "object", properties
	return s
}

// forward returns the handler of an offered tool, which calls it at its server.
func (s *Server) forward(of *start, name string) mcp.ToolHandler {
	return func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		result, err := s.callOffered(ctx, of, name, r)
		if refused := (handlers.Refused{}); err != nil && errors.As(err, &refused) {
			result = &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: refused.Text}}, IsError: true}
			return result, nil
		}
		if err != nil && ctx.Err() == nil {
			s.Logger.Error("call of a tool of an MCP server", "tool", name, "err", err)
		}
		return result, err
	}
}

func (s *Server) callOffered(ctx context.Context, of *start, name string,
	r *mcp.CallToolRequest) (result *mcp.CallToolResult, err error) {
	arguments := map[string]json.RawMessage{}
	if len(r.Params.Arguments) > 0 && json.Unmarshal(r.Params.Arguments, &arguments) != nil {
		return nil, handlers.Refuse(handlers.Invalid, "The arguments must be a JSON object.")
	}
	var signature string
	_ = json.Unmarshal(arguments["caller"], &signature) // verify refuses an empty one
	delete(arguments, "caller")
	c, end, err := s.verify(of, name, signature)
	if err != nil {
		return nil, err
	}
	defer end()
	body, err := json.Marshal(arguments)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(of.life, cancel)()
	c.progress, c.every = progressOf(ctx, r), cmp.Or(s.Every, defaultEvery)
	err = c.await("waiting for the MCP server", func() (err error) {
		result, err = s.Gateway.Call(ctx, gateway.Call{Chat: c.chat, Session: c.Session, Call: c.Call, Tool: name,
			Arguments: body})
		return err
	})
	return result, err
}
