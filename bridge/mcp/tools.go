package mcp

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/schedule"
)

func (s *Server) addTools(to *start) {
	add(s, to, "handoff", "Give a task to a delegate, and wait for its result. To continue without waiting, use assign.", s.handoff)
	add(s, to, "assign", "Give a task to a delegate, and continue. Its result comes as a message.", s.assign)
	add(s, to, "send_message", "Send a message to a delegate, to a delegate of the same parent, or to the parent.", s.sendMessage)
	add(s, to, "check_inbox", "List the newest messages from delegates and the parent, and whether each was read.", s.checkInbox)
	add(s, to, "list_workers", "List the delegates of this chat's tree, with the state of each.", s.listDelegates)
	add(s, to, "check_worker", "Return the state of a delegate, and its result if it has one.", s.checkDelegate)
	add(s, to, "stop_worker", "Stop a delegate, and the delegates that it started.", s.stopDelegate)
	add(s, to, "ask_person", "Ask the person a question, and wait for the answer. The person may take hours.", s.askPerson)
	add(s, to, "send_file", "Send a file of the workspace to the person, in the chat and in the messenger from which they write.", s.sendFile)
	add(s, to, "list_tasks", "List the scheduled tasks of this chat's person, with the next runs and the last result of each.", s.listTasks)
	add(s, to, "pause_task", "Pause a scheduled task: nothing starts until it is resumed.", s.pauseTask)
	add(s, to, "resume_task", "Resume a scheduled task that is paused.", s.resumeTask)
	add(s, to, "cancel_task", "Delete a scheduled task.", s.cancelTask)
	add(s, to, "mcp_status", "List the MCP servers that were requested, and whether a person has approved them.",
		s.mcpStatus)
	add(s, to, "mcp_catalog", "List the MCP servers, and the tools of those that work.", s.mcpCatalog)
	own := map[string]recordTool{proposal.Collection: s.propose, schedule.Collection: s.scheduleTask,
		mcpserver.Collection: s.mcpRequest}
	for _, t := range s.Records.Types() {
		if t.Assistants.Create {
			run := own[t.Name]
			if run == nil {
				run = s.createRecord(t)
			}
			addRecordTool(s, to, t, run)
		}
	}
}

// The limits of proposals.
const (
	maxDrafts   = 100
	maxProposal = 64 << 10 // bytes
)

// propose stores a draft. People see it beside those that were made over the API.
func (s *Server) propose(ctx context.Context, _ call, set record.Values) (string, error) {
	in := proposal.Stored{Kind: set.Text("kind"), Name: set.Text("name"), Content: set.Text("content")}
	switch {
	case in.Kind != proposal.Procedure && in.Kind != proposal.Agent && in.Kind != proposal.Prompt:
		return "", handlers.Refuse(handlers.Invalid, "kind: %.40q cannot be proposed. Use procedure, agent or prompt.",
			in.Kind)
	case in.Name == "" || in.Content == "":
		return "", handlers.Refuse(handlers.Invalid, "name and content must not be empty.")
	case len(in.Name) > 100 || len(in.Content) > maxProposal:
		return "", handlers.Refuse(handlers.Invalid, "name may have at most 100 bytes, and content at most %d KiB.", maxProposal>>10)
	}
	if in.Kind == proposal.Agent {
		if err := proposal.CheckAgent(in.Name, in.Content); err != nil {
			return "", err
		}
	}
	all, err := record.All[struct{ Status string }](ctx, s.Records, proposal.Collection)
	if err != nil {
		return "", err
	}
	drafts := 0
	for _, p := range all {
		if p.Value.Status == proposal.Draft {
			drafts++
		}
	}
	if drafts >= maxDrafts {
		return "", handlers.Refuse(handlers.Conflict, "%d proposals wait for a person. Propose more after a decision.", drafts)
	}
	set = set.With(record.Fields(map[string]any{"status": proposal.Draft}))
	id, _, err := s.Records.Save(ctx, record.Save{Command: s.command(), Collection: proposal.Collection, Set: set,
		New: true, Role: account.Agent})
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

// maxLine is the longest description of a tool in the catalogue, in bytes.
const maxLine = 160

// mcpCatalog lists the MCP servers. It describes only tools that a person has approved, because a description is text
// for the model.
func (s *Server) mcpCatalog(ctx context.Context, _ call, _ noArguments) (string, error) {
	type tool struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	type server struct {
		Name  string `json:"name"`
		State string `json:"state"`
		Tools []tool `json:"tools,omitempty"`
	}
	all, err := mcpserver.All(ctx, s.Records)
	if err != nil {
		return "", err
	}
	list := make([]server, len(all))
	for i, m := range all {
		list[i] = server{Name: m.Name, State: m.State()}
		offered, _ := m.Offered()
		for _, name := range slices.Sorted(maps.Keys(offered)) {
			line, _, _ := strings.Cut(strings.TrimSpace(offered[name].Description), "\n")
			line = strings.ToValidUTF8(line[:min(len(line), maxLine)], "")
			list[i].Tools = append(list[i].Tools, tool{events.OwnTools + name, line})
		}
	}
	return encode(map[string]any{"servers": list})
}

// maxPending bounds the MCP servers that wait for an approval.
const maxPending = 20

// mcpRequest stores a pending server, which an administrator decides about.
func (s *Server) mcpRequest(ctx context.Context, c call, set record.Values) (string, error) {
	in, err := record.Read[mcpserver.Server](set)
	if err != nil {
		return "", handlers.Refuse(handlers.Invalid, "environment and hosts must be lists of texts.")
	}
	if (in.Command == "") == (in.URL == "") || in.Reason == "" {
		return "", handlers.Refuse(handlers.Invalid, "Give a reason, and either a command or a URL.")
	}
	all, err := mcpserver.All(ctx, s.Records)
	if err != nil {
		return "", err
	}
	pending := 0
	for _, m := range all {
		if m.Status == mcpserver.Pending {
			pending++
		}
		if m.Name == in.Name {
			return "", handlers.Refuse(handlers.Conflict, "The MCP server %s exists already. Its state is %s.", m.Name, m.State())
		}
	}
	if pending >= maxPending {
		return "", handlers.Refuse(handlers.Conflict, "%d MCP servers wait for a person. Request more after a decision.", pending)
	}
	_, _, err = s.Records.Save(ctx, record.Save{Command: s.command(), Collection: mcpserver.Collection, New: true,
		Role: account.Agent, Set: record.Fields(map[string]any{"name": in.Name, "command": in.Command, "url": in.URL,
			"environment": append([]string{}, in.Environment...), "hosts": append([]string{}, in.Hosts...),
			"reason": in.Reason, "status": mcpserver.Pending, "requested_by": events.ChatActor(c.chat)})})
	if err != nil {
		return "", err
	}
	return "The MCP server " + in.Name + " waits for a person. mcp_catalog says when it is active.", nil
}

// encode returns the JSON of a result.
func encode(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
