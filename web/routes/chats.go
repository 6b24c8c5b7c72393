package routes

import (
	"context"
	"encoding/json"

	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/exec"
	"pocketcoder/handlers/permission"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
)

// Chats serves the routes that act on a chat besides its records: abort, fork and revert a turn, leave files out,
// signal a command, request a permission, explain a permission, and make a rule of it. A rule for more than one chat
// needs an administrator.
type Chats struct {
	API    *api.Server
	Chats  *chat.Chats
	Gate   permission.Gate
	Engine Engine
	Signal func(context.Context, exec.Signal) (uint64, error)
}

// Engine asks OpenCode about a chat and returns its JSON. Errors are refusals.
type Engine struct {
	// Open starts the engine of a chat if it does not run, because a person has opened the chat. It may take long.
	Open func(ctx context.Context, chat string)

	Diff func(ctx context.Context, chat, message string) (json.RawMessage, error)
	Todo func(ctx context.Context, chat string) (json.RawMessage, error)
	// Changed returns the files that an undo would change although they were changed later
	Changed func(ctx context.Context, chat, message string) ([]string, error)
}

var (
	alwaysQuery = []api.Param{
		{Name: "scope", About: "for whom: chat (when absent), agent or all"}, {Name: "for", About: "how long, such as 1h; for ever when absent"},
		{Name: "pattern", About: "of the rule; the smallest sensible one when absent"},
	}
	newsQuery = []api.Param{{Name: "after", Integer: true,
		About: "sequence of the event; up to where the account has seen the chat when absent"}}
	fileMessage = []api.Param{{Name: "message", About: "OpenCode's id of the message whose changes are meant; the newest when absent"}}
)

func (s *Chats) Routes() []api.Route {
	const (
		chat           = "/api/pocketcoder/chats/{id}"
		permissionPath = "/api/pocketcoder/permissions/{id}"
	)
	return []api.Route{
		{Method: "POST", Path: "/api/executions/{id}/signal", About: "Send a signal to a command that runs.", Access: api.Accounts, Query: once, Body: signalRequest{}, Serve: s.signalExecution},
		{Method: "POST", Path: "/api/pocketcoder/permission", About: "Ask for a permission: a rule decides at once, or a person later.", Access: api.Staff, Body: permissionRequest{}, Answer: permissionAnswer{}, Serve: s.requestPermission},
		{Method: "GET", Path: permissionPath + "/why", About: "Explain a permission request: its content, the verdict of each rule, the decision and the executions.", Access: api.Accounts, Answer: permission.Why{}, Serve: s.whyPermission},
		{Method: "GET", Path: permissionPath + "/always", About: "The rule that would allow this kind from now on, and what it would have allowed so far. Nothing is stored.", Access: api.Accounts, Query: alwaysQuery, Answer: Proposal{}, Serve: s.proposeAlways},
		{Method: "POST", Path: permissionPath + "/always", About: "Store that rule, and approve the request if it is pending.", Access: api.Accounts, Query: once, Body: AlwaysRequest{}, Answer: alwaysAnswer{}, Serve: s.allowAlways},
		{Method: "POST", Path: "/api/pocketcoder/policy/replay", About: "Try a rule on past permission requests.", Access: api.Accounts, Body: replayRequest{}, Answer: permission.DryRunResult{}, Serve: s.replayPolicy},
		{Method: "POST", Path: chat + "/abort", About: "Stop the chat's turn.", Access: api.Accounts, Query: once, Serve: s.abortChat},
		{Method: "POST", Path: chat + "/fork", About: "Begin a new chat as this one was before a message, or as it is.", Access: api.Accounts, Query: once, Body: forkRequest{}, Answer: api.AnyRecord{}, Serve: s.forkChat},
		{Method: "POST", Path: chat + "/revert", About: "Take back a message and all later ones, with their changes to files. The answer names the files. Without a message, undo the last revert. If a file was changed later, the answer is 409 and names it; send changed as keep or overwrite then.", Access: api.Accounts, Query: once, Body: revertRequest{}, Answer: revertAnswer{}, Serve: s.revertChat},
		{Method: "POST", Path: chat + "/omit", About: "Leave out the files that are new to the model. It is refused unless the turn was stopped or the provider answered with status 400, 413, 415, 422, or any status from 500 on. The answer names them; the next message does not contain them. If none is new, all files of the chat are left out.", Access: api.Accounts, Query: once, Answer: omitAnswer{}, Serve: s.omitFiles},
		{Method: "GET", Path: chat + "/diff", About: "What the chat's session changed in files.", Access: api.Accounts, Query: fileMessage, Answer: []json.RawMessage{}, Serve: s.diffChat},
		{Method: "GET", Path: chat + "/news", About: "What happened in the chat after an event.", Access: api.Accounts, Query: newsQuery, Answer: timeline.News{}, Serve: s.newsOfChat},
		{Method: "GET", Path: chat + "/todo", About: "The assistant's list of what to do.", Access: api.Accounts, Answer: []json.RawMessage{}, Serve: s.todoOfChat},
	}
}
