package mcpserver

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/record"
)

// Collection is the config collection of the MCP servers that were requested, and what was decided about them.
const Collection = "mcp_servers"

// Programs returns the files of the workspace that the command of a server names, with their hashes. A nil function
// pins none.
type Programs func(command string) []string

// Type is the type of the records of MCP servers.
func (p Programs) Type() record.Type {
	t := record.Type{Name: Collection, Command: "mcp", Title: "MCP servers", About: "servers of tools that administrators and agents added",
		Access:     record.Rules(record.Staff, record.Staff, record.Staff, record.Admins, record.Admins),
		Assistants: record.Verbs{Create: true}, Complete: complete, Secret: storage, Tool: "mcp_request",
		ToolAbout: "Request an MCP server, whose tools you can call once a person has approved it.",
		Fields: []record.Field{
			{Name: "name", Kind: record.Text, Assistant: "1 to 24 letters, digits and -", Label: "Name", Required: true},
			{Name: "status", Kind: record.Select, Label: "Status", Values: []string{Pending, Approved, Denied, Revoked}, Required: true},
			{Name: "requested_by", Kind: record.Text, Label: "Requested by", Shown: true},
			{Name: "approved_by", Kind: record.Relation, Label: "Approved by", Relation: "users", Shown: true},
			{Name: "approved_at", Kind: record.Date, Label: "Approved at", Shown: true},
			{Name: "config", Kind: record.JSON, Label: "Configuration", Shown: true},
			{Name: "catalog", Kind: record.Text, Label: "Catalogue", Shown: true},
			{Name: "reason", Kind: record.Text, Assistant: "what it is for, in a sentence for the person", Label: "Reason", Lines: true},
			{Name: "image", Kind: record.Text, Label: "Image", Shown: true},
			{Name: "config_schema", Kind: record.JSON, Label: "Schema of the configuration", Shown: true},
			{Name: "command", Kind: record.Text, Assistant: "runs in the sandbox, and speaks MCP on stdin and stdout: npx -y PACKAGE@1.2.3", Label: "Command"},
			{Name: "url", Kind: record.Text, Assistant: "of a remote server, in place of a command", Label: "URL"},
			{Name: "environment", Kind: record.JSON, Assistant: "names of secrets that it needs, or of headers for the URL; the person sets the values", Label: "Environment variables, one in each line", Texts: true},
			{Name: "hosts", Kind: record.JSON, Assistant: "hosts that the command needs, such as api.example.org or *.example.com; it reaches no other", Label: "Hosts that it may reach, one in each line", Texts: true},
			{Name: "limits", Kind: record.JSON, Label: "Limits of its own", Parts: []record.Field{
				{Name: "memory", Kind: record.Text, Label: "Memory of its command", Example: "512MiB"},
				{Name: "processes", Kind: record.Number, Label: "Processes and threads of its command"},
				{Name: "cpu_time", Kind: record.Text, Label: "Processor time of its command", Example: "30m"},
			}},
			{Name: "version", Kind: record.Text, Label: "Version", ReadOnly: true},
			{Name: "tools", Kind: record.JSON, Label: "Tools", ReadOnly: true},
			{Name: "found_version", Kind: record.Text, Label: "Version found", ReadOnly: true},
			{Name: "found_tools", Kind: record.JSON, Label: "Tools found", ReadOnly: true},
			{Name: "difference", Kind: record.Text, Label: "Difference to what was approved", ReadOnly: true},
			{Name: "problem", Kind: record.Text, Label: "Problem", ReadOnly: true},
			{Name: "not_offered", Kind: record.Text, Label: "Tools that are not offered", ReadOnly: true},
			{Name: "definition", Kind: record.Text, Label: "Definition", ReadOnly: true},
			{Name: "programs", Kind: record.JSON, Label: "Files that the command names", ReadOnly: true,
				Admins: true},
			{Name: record.ShownDefinition, Kind: record.Text, Argument: true, Shown: true, About: shownServer},
		}}
	if p != nil {
		t.Prepare = p.prepare
	}
	return t
}

const shownServer = "The definition that was shown. An approval is refused if the server has another one, or has one and " +
	"this field is missing."

// Stored is a server with the id of its record.
type Stored struct {
	ID string `json:"id"`
	Server
}

// All lists the MCP servers in the order of their last changes.
func All(ctx context.Context, h *record.Records) ([]Stored, error) {
	return record.List(ctx, h, Collection, func(r record.StoredRecord[Server]) Stored { return Stored{r.ID, r.Value} })
}

// reportedFields are those of a server that only its own reports set, and an approval.
var reportedFields = []string{"version", "tools", "found_version", "found_tools", "difference", "problem",
	"not_offered"}

// complete stores who requested and who approved a server. Only administrators decide about one. An approval pins what
// the server reported last. A changed command, URL, environment, host or limit needs a new approval.
func complete(c record.Change) error {
	shown := c.Set.Text(record.ShownDefinition)
	for _, name := range append([]string{"approved_by", "approved_at", "definition", "programs", record.ShownDefinition},
		reportedFields...) {
		delete(c.Set, name)
	}
	if c.Found != nil && (c.New || c.Changes("command")) {
		c.Put("programs", c.Found)
	}
	if err := decide(c, shown); err != nil {
		return err
	}
	if now, err := record.Read[Server](c.Now()); err == nil && now.Runs() {
		c.Put("definition", now.Hash())
	}
	return nil
}

func decide(c record.Change, shown string) error {
	if c.New {
		c.Stamp("requested_by")
	}
	if err := redefine(c); err != nil {
		return err
	}
	if !c.Changes("status") {
		return nil
	}
	status := c.Text("status")
	if status != Pending && !c.Admin() {
		return record.Invalid("status", "Must be pending: an administrator decides.")
	}
	if status == Approved {
		if err := c.CheckShown("MCP server", shown); err != nil {
			return err
		}
		c.Stamp("approved_by")
		c.Put("approved_at", events.FormatTime(time.Now()))
		pinReported(c)
	}
	return nil
}

// redefine checks a server that the gateway runs. If what is approved changes, the server is pending again, and nothing
// is pinned. The difference has all changes since the approval.
func redefine(c record.Change) error {
	if !c.New && !c.Changes("name", "command", "url", "environment", "hosts", "limits") {
		return nil
	}
	server, err := record.Read[Server](c.Now())
	if err != nil {
		return record.Invalid("environment",
			"Must be a list of names, as hosts must be. limits may have memory, processes and cpu_time.")
	}
	if !server.Runs() {
		return nil
	}
	if err := server.Check(); err != nil {
		return err
	}
	for _, values := range c.Others() {
		other, err := record.Read[Server](values)
		if err == nil && other.Runs() && other.Name == server.Name {
			return record.Invalid("name", "Another MCP server has this name.")
		}
	}
	if c.New {
		return nil
	}
	for _, name := range reportedFields {
		c.Set[name] = json.RawMessage("null")
	}
	wasApproved := c.Old.Text("status") == Approved
	if wasApproved {
		c.Put("status", Pending)
	}
	if before, err := record.Read[Server](c.Old); err == nil && (wasApproved || before.Difference != "") {
		c.Put("difference", strings.TrimSpace(before.Difference+"\n"+before.Changes(server)))
	}
	return nil
}

// pinReported pins what the server reported last in place of what was pinned.
func pinReported(c record.Change) {
	now := c.Now()
	if tools := now.Value("found_tools"); string(tools) != `""` {
		c.Set["tools"], c.Set["version"] = tools, now.Value("found_version")
	}
	for _, name := range []string{"found_version", "found_tools", "difference", "problem"} {
		if _, has := now[name]; has {
			c.Set[name] = json.RawMessage("null")
		}
	}
}

// prepare looks at the files that the command of a server names. If the files of a server that is not approved have
// changed since it was saved, that is recorded first: the approval of the definition that was shown is then refused.
func (p Programs) prepare(ctx context.Context, h *record.Records, c *record.Save) error {
	if raw, given := c.Set["command"]; given {
		var command string
		_ = json.Unmarshal(raw, &command) // anything else is no command
		c.Found = append([]string{}, p(command)...)
	}
	if c.New {
		return nil
	}
	return p.Check(ctx, h, c.Record, false)
}

// Check records that the files that a server's command names have changed. An approved server is looked at only if it
// starts: it is then pending.
func (p Programs) Check(ctx context.Context, h *record.Records, id string, starts bool) error {
	if p == nil {
		return nil
	}
	by := handlers.Command{Actor: events.ActorSystem}
	return h.Edit(ctx, by, Collection, id, func(values record.Values) (map[string]any, error) {
		have, err := record.Read[Server](values)
		if err != nil || have.Command == "" || have.Status == Approved && !starts {
			return nil, nil
		}
		now := have.withPrograms(p(have.Command))
		if now.Hash() == have.Hash() {
			return nil, nil
		}
		return map[string]any{"status": now.Status, "programs": now.Programs, "difference": now.Difference,
			"definition": now.Hash()}, nil
	})
}

// SaveReport records what a started server says of itself.
type SaveReport struct {
	handlers.Command
	Record string
	Of     Server // as it was approved when it was started
	Report
}

// Save returns the server as it is afterwards. It has no effect on a server that is not approved any more, or whose
// definition has changed.
func (c SaveReport) Save(ctx context.Context, h *record.Records) (now Server, err error) {
	err = h.Edit(ctx, c.Command, Collection, c.Record, func(values record.Values) (map[string]any, error) {
		if now, err = record.Read[Server](values); err != nil || now.Status != Approved || now.Changes(c.Of) != "" {
			return nil, err
		}
		now = now.Apply(c.Report)
		var list any
		if now.FoundTools != nil {
			list = now.FoundTools
		}
		return map[string]any{"status": now.Status, "version": now.Version, "tools": now.Tools,
			"found_version": now.FoundVersion, "found_tools": list, "difference": now.Difference, "problem": now.Problem,
			"not_offered": now.NotOffered, "definition": now.Hash()}, nil
	})
	return now, err
}
