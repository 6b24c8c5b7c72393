package api

import (
	"context"
	"encoding/json"

	"pocketcoder/handlers"
)

// Chats serves what is done with a chat besides changing its records.
type Chats struct {
	API      *Server
	Handlers *handlers.Handlers
	Gate     handlers.Gate
	Engine   Engine
	Signal   func(context.Context, handlers.SignalExecution) (uint64, error)
}

// Engine is what only OpenCode can say about a chat: JSON, as it says it. Its errors are ErrUnavailable, or somebody's fault.
type Engine struct {
	Diff func(ctx context.Context, chat, message string) (json.RawMessage, error)
	Todo func(ctx context.Context, chat string) (json.RawMessage, error)
}

var (
	alwaysQuery = []Param{
		{Name: "scope", About: "for whom: chat (when absent), agent or all"}, {Name: "for", About: "how long, such as 1h; for ever when absent"},
		{Name: "pattern", About: "of the rule; the smallest sensible one when absent"},
	}
	fileMessage = []Param{{Name: "message", About: "OpenCode's id of the message whose changes are meant; the newest when absent"}}
)

// Routes are the routes of chats.
func (s *Chats) Routes() []Route {
	const (
		chat       = "/api/pocketcoder/chats/{id}"
		permission = "/api/pocketcoder/permissions/{id}"
	)
	return []Route{
		{Method: "POST", Path: "/api/executions/{id}/signal", About: "Send a signal to a command that runs.", Admits: accounts, Body: signalRequest{}, Serve: s.signalExecution},
		{Method: "POST", Path: "/api/pocketcoder/permission", About: "Ask for a permission: a rule decides at once, or a person later.", Admits: staff, Body: permissionRequest{}, Answer: permissionAnswer{}, Serve: s.requestPermission},
		{Method: "GET", Path: permission + "/why", About: "What was asked, what every rule says of it, who decided, and what then ran.", Admits: accounts, Answer: handlers.Why{}, Serve: s.whyPermission},
		{Method: "GET", Path: permission + "/always", About: "The rule that would allow this kind from now on, and what it would have allowed so far. Nothing is stored.", Admits: accounts, Query: alwaysQuery, Answer: proposal{}, Serve: s.proposeAlways},
		{Method: "POST", Path: permission + "/always", About: "Store that rule, and allow the ask when it still waits.", Admits: accounts, Body: alwaysRequest{}, Answer: alwaysAnswer{}, Serve: s.allowAlways},
		{Method: "POST", Path: "/api/pocketcoder/policy/replay", About: "What a rule would have allowed of what was asked so far.", Admits: accounts, Body: replayRequest{}, Answer: handlers.DryRun{}, Serve: s.replayPolicy},
		{Method: "POST", Path: chat + "/abort", About: "Stop the chat's turn.", Admits: accounts, Serve: s.abortChat},
		{Method: "POST", Path: chat + "/fork", About: "Begin a new chat as this one was before a message, or as it is.", Admits: accounts, Body: forkRequest{}, Answer: anyRecord{}, Serve: s.forkChat},
		{Method: "POST", Path: chat + "/revert", About: "Take back a message, what followed it, and its changes to files; without a message, undo that.", Admits: accounts, Body: revertRequest{}, Serve: s.revertChat},
		{Method: "GET", Path: chat + "/diff", About: "What the chat's session changed in files.", Admits: accounts, Query: fileMessage, Answer: []json.RawMessage{}, Serve: s.diffChat},
		{Method: "GET", Path: chat + "/todo", About: "The assistant's list of what to do.", Admits: accounts, Answer: []json.RawMessage{}, Serve: s.todoOfChat},
	}
}
