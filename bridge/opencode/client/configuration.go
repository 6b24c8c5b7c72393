package client

import (
	"context"
	"encoding/json"
	"net/url"
	"time"
)

// Configuration is the part of OpenCode's effective configuration that decides what runs unasked.
type Configuration struct {
	Shell      string
	Permission map[string]any
	Plugin     []any
	MCP        map[string]struct{ URL string }
}

func (c *Client) Configuration(ctx context.Context, directory string) (out Configuration, err error) {
	err = c.do(ctx, call{op: "get opencode's configuration", path: "/config", query: inDirectory(directory), out: &out})
	return out, err
}

// Agent is an agent that OpenCode knows. The last of its rules that matches a request decides.
type Agent struct {
	Name       string
	Permission []AgentRule
}

// AgentRule is a rule about what an agent may do. The action is "allow", "ask" or "deny".
type AgentRule struct{ Permission, Pattern, Action string }

// Agents lists the agents that OpenCode knows in a directory.
func (c *Client) Agents(ctx context.Context, directory string) (all []Agent, err error) {
	err = c.do(ctx, call{op: "list opencode's agents", path: "/agent", query: inDirectory(directory), out: &all})
	return all, err
}

func (c *Client) ProjectID(ctx context.Context, directory string) (string, error) {
	var out struct{ ID string }
	err := c.do(ctx, call{op: "get opencode's project", path: "/project/current", query: inDirectory(directory),
		out: &out})
	return out.ID, err
}

// connectTimeout is longer than OpenCode's own: 30 s for each of two ways to reach a server.
const connectTimeout = 90 * time.Second

// ConnectTools waits until OpenCode has tried to connect to its MCP servers in a directory. Without this call, OpenCode
// connects during the first turn in the directory. If that turn is aborted meanwhile, OpenCode 1.18 aborts every later
// turn in the directory.
func (c *Client) ConnectTools(ctx context.Context, directory string) error {
	ctx = context.WithoutCancel(ctx) // an interrupted connection has the same effect
	return c.do(ctx, call{op: "connect to the MCP servers in " + directory, path: "/mcp", query: inDirectory(directory),
		timeout: connectTimeout})
}

// Diff returns the files that the turn of a person's message changed: a list of {file, patch, additions, deletions,
// status} in OpenCode's form.
func (c *Client) Diff(ctx context.Context, session, message string) (list json.RawMessage, err error) {
	err = c.do(ctx, call{op: "get diff of " + message, path: sessionPath(session, "/diff"),
		query: url.Values{"messageID": {message}}, out: &list})
	return list, err
}

// Todo returns the assistant's to-do list of a session: {content, status, priority} in OpenCode's form.
func (c *Client) Todo(ctx context.Context, session string) (list json.RawMessage, err error) {
	err = c.do(ctx, call{op: "get todo list of session " + session, path: sessionPath(session, "/todo"), out: &list})
	return list, err
}
