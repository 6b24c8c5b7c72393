package record

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/record/mcpserver"
)

// MCPServerCollection is the config collection of the MCP servers that were requested, and what was decided about them.
const MCPServerCollection = "mcp_servers"

// reportedFields are those of a server that only its own reports set, and an approval.
var reportedFields = []string{"version", "tools", "found_version", "found_tools", "difference", "problem",
	"not_offered"}

// ShownDefinition is the field with which a command decides: the definition that was shown. It is not stored.
const ShownDefinition = "shown_definition"

// completeMCPServer stores who requested and who approved a server. Only administrators decide about one. An approval
// pins what the server reported last. A changed command, URL, environment, host or limit needs a new approval.
func completeMCPServer(c change) error {
	shown := c.set.text(ShownDefinition)
	for _, name := range append([]string{"approved_by", "approved_at", "definition", "programs", ShownDefinition},
		reportedFields...) {
		delete(c.set, name)
	}
	if c.programs != nil && (c.New || c.changes("command")) {
		maps.Copy(c.set, Fields(map[string]any{"programs": c.programs}))
	}
	if err := c.decideMCPServer(shown); err != nil {
		return err
	}
	if now, err := read[mcpserver.Server](c.old.with(c.set)); err == nil && now.Runs() {
		c.put("definition", now.Hash())
	}
	return nil
}

func (c change) decideMCPServer(shown string) error {
	if c.New {
		c.stamp("requested_by")
	}
	if err := c.redefine(); err != nil {
		return err
	}
	if !c.changes("status") {
		return nil
	}
	status := c.text("status")
	if status != mcpserver.Pending && !c.Admin() {
		return invalid("status", "Must be pending: an administrator decides.")
	}
	if status == mcpserver.Approved {
		if err := c.checkShown("MCP server", shown); err != nil {
			return err
		}
		c.stamp("approved_by")
		c.put("approved_at", FormatTime(time.Now()))
		c.pinReported()
	}
	return nil
}

// checkShown refuses to decide about a record that differs from the one that was shown. A new server is defined by the
// command itself, and a server that the gateway does not run has no definition.
func (c change) checkShown(what, shown string) error {
	switch now := c.old.text("definition"); {
	case c.New || now == "" || now == shown:
		return nil
	case shown == "":
		return invalid(ShownDefinition, "Must be the definition of the %s that was shown.", what)
	}
	return handlers.RefuseField(handlers.Conflict, ShownDefinition,
		"The %s has changed since it was shown. Nothing was decided. Look at it again.", what)
}

// redefine checks a server that the gateway runs. If what is approved changes, the server is pending again, and nothing
// is pinned. The difference has all changes since the approval.
func (c change) redefine() error {
	if !c.New && !c.changes("name", "command", "url", "environment", "hosts", "limits") {
		return nil
	}
	server, err := read[mcpserver.Server](c.old.with(c.set))
	if err != nil {
		return invalid("environment", "Must be a list of names, as hosts must be. limits may have memory, processes and cpu_time.")
	}
	if !server.Runs() {
		return nil
	}
	if err := server.Check(); err != nil {
		return err
	}
	for id, r := range c.all.records {
		other, err := read[mcpserver.Server](r.fields)
		if id != c.Record && !r.deleted && err == nil && other.Runs() && other.Name == server.Name {
			return invalid("name", "Another MCP server has this name.")
		}
	}
	if c.New {
		return nil
	}
	for _, name := range reportedFields {
		c.set[name] = json.RawMessage("null")
	}
	wasApproved := c.old.text("status") == mcpserver.Approved
	if wasApproved {
		c.put("status", mcpserver.Pending)
	}
	if before, err := read[mcpserver.Server](c.old); err == nil && (wasApproved || before.Difference != "") {
		c.put("difference", strings.TrimSpace(before.Difference+"\n"+before.Changes(server)))
	}
	return nil
}

// pinReported pins what the server reported last in place of what was pinned.
func (c change) pinReported() {
	now := c.old.with(c.set)
	if tools := now.value("found_tools"); string(tools) != `""` {
		c.set["tools"], c.set["version"] = tools, now.value("found_version")
	}
	for _, name := range []string{"found_version", "found_tools", "difference", "problem"} {
		if _, has := now[name]; has {
			c.set[name] = json.RawMessage("null")
		}
	}
}

func read[T any](f fields) (v T, err error) {
	body, err := json.Marshal(f)
	if err == nil {
		err = json.Unmarshal(body, &v)
	}
	return v, err
}

type MCPServer struct {
	ID string `json:"id"`
	mcpserver.Server
}

// MCPServers lists the MCP servers in the order of their last changes.
func (h *Records) MCPServers(ctx context.Context) ([]MCPServer, error) {
	return List(ctx, h, MCPServerCollection, func(r StoredRecord[mcpserver.Server]) MCPServer {
		return MCPServer{r.ID, r.Value}
	})
}

// MCPServer returns an MCP server, the zero value if there is none.
func (h *Records) MCPServer(ctx context.Context, id string) (s mcpserver.Server, err error) {
	all, err := h.MCPServers(ctx)
	for _, one := range all {
		if one.ID == id {
			s = one.Server
		}
	}
	return s, err
}

// lookAtPrograms adds to a command the files that the command of a server names. If the files of a server that is not
// approved have changed since it was saved, that is recorded first: the approval of the definition that was shown is
// then refused.
func (h *Records) lookAtPrograms(ctx context.Context, c *Save) error {
	if h.Programs == nil || c.Collection != MCPServerCollection {
		return nil
	}
	if raw, given := c.Set["command"]; given {
		var command string
		_ = json.Unmarshal(raw, &command) // anything else is no command
		c.programs = append([]string{}, h.Programs(command)...)
	}
	if c.New {
		return nil
	}
	return h.CheckPrograms(ctx, c.Record, false)
}

// CheckPrograms records that the files that a server's command names have changed. An approved server is looked at only
// if it starts: it is then pending.
func (h *Records) CheckPrograms(ctx context.Context, id string, starts bool) error {
	if h.Programs == nil {
		return nil
	}
	_, err := h.collection(ctx, MCPServerCollection).CarryOut(ctx, h.Log, handlers.Command{Actor: events.ActorSystem},
		func(s *collection) ([]events.Event, uint64, error) {
			r := s.records[id]
			have, err := read[mcpserver.Server](r.fields)
			if err != nil || r.deleted || have.Command == "" || have.Status == mcpserver.Approved && !starts {
				return nil, r.seq, nil
			}
			now := have.WithPrograms(h.Programs(have.Command))
			if now.Hash() == have.Hash() {
				return nil, r.seq, nil
			}
			after := r.fields.with(h.redacted(Fields(map[string]any{"status": now.Status, "programs": now.Programs,
				"difference": now.Difference, "definition": now.Hash()})))
			body, err := after.encode()
			if err != nil {
				return nil, 0, err
			}
			e, err := events.NewConfig(MCPServerCollection, id, events.ActorSystem, events.Saved{Fields: body})
			return []events.Event{e}, 0, err
		})
	return err
}

// ReportMCPServer records what a started server says of itself.
type ReportMCPServer struct {
	handlers.Command
	Record string
	Of     mcpserver.Server // as it was approved when it was started
	mcpserver.Report
}

// ReportMCPServer returns the server as it is afterwards. It has no effect on a server that is not approved any more,
// or whose definition has changed.
func (h *Records) ReportMCPServer(ctx context.Context, c ReportMCPServer) (now mcpserver.Server, err error) {
	_, err = h.collection(ctx, MCPServerCollection).CarryOut(ctx, h.Log, c.Command,
		func(s *collection) ([]events.Event, uint64, error) {
			r := s.records[c.Record]
			have, err := read[mcpserver.Server](r.fields)
			if now = have; err != nil || r.deleted || have.Status != mcpserver.Approved || have.Changes(c.Of) != "" {
				return nil, r.seq, err
			}
			now = have.Apply(c.Report)
			after, err := h.reported(r.fields, now)
			if err != nil || maps.EqualFunc(r.fields, after, sameJSON) {
				return nil, r.seq, err
			}
			body, err := after.encode()
			if err != nil {
				return nil, 0, err
			}
			e, err := events.NewConfig(MCPServerCollection, c.Record, c.Actor, events.Saved{Fields: body})
			return []events.Event{e}, 0, err
		})
	return now, err
}

// reported returns the fields with the status and what a server has reported, without secrets.
func (h *Records) reported(before fields, s mcpserver.Server) (fields, error) {
	after := fields{}
	maps.Copy(after, before)
	var list any
	if s.FoundTools != nil {
		list = s.FoundTools
	}
	set, err := compactFields(Fields(map[string]any{"status": s.Status, "version": s.Version, "tools": s.Tools,
		"found_version": s.FoundVersion, "found_tools": list, "difference": s.Difference, "problem": s.Problem,
		"not_offered": s.NotOffered, "definition": s.Hash()}))
	maps.Copy(after, h.redacted(set))
	return after, err
}
