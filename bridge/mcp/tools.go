package mcp

import (
	"context"
	"encoding/json"

	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
)

func (s *Server) addTools(to *start) {
	add(s, to, "handoff", "Delegate a task to a worker, and wait for its result. To continue without waiting, use assign.", s.handoff)
	add(s, to, "assign", "Delegate a task to a worker, and continue. Its result comes as a message.", s.assign)
	add(s, to, "send_message", "Send a message to a worker, to a worker of the same parent, or to the parent.", s.sendMessage)
	add(s, to, "check_inbox", "List the newest messages from workers and the parent, and whether each was read.", s.checkInbox)
	add(s, to, "list_workers", "List the workers of this chat's tree, with the state of each.", s.listWorkers)
	add(s, to, "check_worker", "Return the state of a worker, and its result if it has one.", s.checkWorker)
	add(s, to, "stop_worker", "Stop a worker, and the workers that it started.", s.stopWorker)
	add(s, to, "ask_person", "Ask the person a question, and wait for the answer. The person may take hours.", s.askPerson)
	add(s, to, "propose", "Propose a procedure to the person. It takes effect when a person has approved it.", s.propose)
	add(s, to, "mcp_status", "List the MCP servers that were requested, and whether a person has approved them.",
		s.mcpStatus)
}

// proposals is the collection of proposals.
const proposals = "proposals"

// The limits of proposals.
const (
	maxDrafts   = 100
	maxProposal = 64 << 10 // bytes
)

type proposeArguments struct {
	signed
	Kind    string `json:"kind" jsonschema:"what is proposed: procedure"`
	Name    string `json:"name" jsonschema:"short name, such as release-notes"`
	Content string `json:"content" jsonschema:"the whole text, in Markdown"`
}

// propose stores a draft. People see it beside those that were made over the API.
func (s *Server) propose(ctx context.Context, _ call, in proposeArguments) (string, error) {
	switch {
	case in.Kind != "procedure":
		return "", handlers.Refuse(handlers.Invalid, "kind: %q cannot be proposed. Use procedure.", in.Kind)
	case in.Name == "" || in.Content == "":
		return "", handlers.Refuse(handlers.Invalid, "name and content must not be empty.")
	case len(in.Name) > 100 || len(in.Content) > maxProposal:
		return "", handlers.Refuse(handlers.Invalid, "name may have at most 100 bytes, and content at most %d KiB.", maxProposal>>10)
	}
	type proposal struct{ Status string }
	all, err := record.All[proposal](ctx, s.Records, proposals)
	if err != nil {
		return "", err
	}
	drafts := 0
	for _, p := range all {
		if p.Value.Status == "draft" {
			drafts++
		}
	}
	if drafts >= maxDrafts {
		return "", handlers.Refuse(handlers.Conflict, "%d proposals wait for a person. Propose more after a decision.", drafts)
	}
	set := record.Fields(map[string]any{"name": in.Name, "content": in.Content, "status": "draft"})
	id, _, err := s.Records.Save(ctx, record.Save{Command: s.command(), Collection: proposals, Set: set, New: true,
		Role: account.Agent})
	if err != nil {
		return "", err
	}
	return "Proposal " + id + " is stored. A person has to approve it.", nil
}

type noArguments struct{ signed }

// mcpStatus lists the MCP servers and the state of each.
func (s *Server) mcpStatus(ctx context.Context, _ call, _ noArguments) (string, error) {
	type server struct {
		Name   string `json:"name"`
		Status string `json:"status"`
		Reason string `json:"reason,omitempty"`
	}
	all, err := record.All[server](ctx, s.Records, "mcp_servers")
	if err != nil {
		return "", err
	}
	list := make([]server, len(all))
	for i, r := range all {
		list[i] = r.Value
	}
	return encode(map[string]any{"servers": list})
}

// encode returns the JSON of a result.
func encode(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
