package projections

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// The states of a call of an MCP server.
const (
	mcpCallRunning   = "running"
	MCPCallCompleted = "completed"
	MCPCallFailed    = "failed"
)

// MCPCall is a call of a tool of an MCP server, found by its session and its id. If a model uses an id again, the row
// is the newer call.
type MCPCall struct {
	store.Record
	Server     string `db:"server"` // record of mcp_servers
	Tool       string `db:"tool"`   // as the server names it
	Chat       string `db:"chat"`
	State      string `db:"state"`  // running, completed or failed
	Result     string `db:"result"` // the beginning of its text, or why there is no result
	DurationMS int64  `db:"duration_ms"`
}

// updateMCPCalls applies an event of a chat.
func updateMCPCalls(t *tables, e events.Event, body any) error {
	switch b := body.(type) {
	case events.MCPCalled:
		older, _ := t.mcpCalls.Get(mcpCallID(b.Session, b.Call)) // a model may use the id of an earlier call again
		t.mcpCalls.Put(MCPCall{Record: store.Record{ID: older.ID, Updated: older.Updated}, Server: b.Server, Tool: b.Tool,
			Chat: e.Subject.ID, State: mcpCallRunning})
	case events.MCPReturned:
		if c, found := t.mcpCalls.Get(mcpCallID(b.Session, b.Call)); found {
			c.State, c.Result = mcpOutcome(b)
			c.DurationMS = b.DurationMS
			t.mcpCalls.Put(c)
		}
	}
	return nil
}

func mcpCallID(session, call string) string { return store.RecordID(session + "\x00" + call) }

// maxMCPResult bounds the result that is stored, in runes.
const maxMCPResult = 200

// mcpOutcome returns the state of a call that has returned, and the beginning of its text.
func mcpOutcome(b events.MCPReturned) (state, text string) {
	var result struct {
		IsError bool
		Content []struct{ Text string }
	}
	state = MCPCallCompleted
	if text = b.Error; text == "" {
		_ = json.Unmarshal(b.Result, &result) // a result that cannot be read has no text
		for _, c := range result.Content {
			text = strings.TrimSpace(text + "\n" + c.Text)
		}
	}
	if b.Error != "" || result.IsError {
		state = MCPCallFailed
	}
	if runes := []rune(text); len(runes) > maxMCPResult {
		text = string(runes[:maxMCPResult-1]) + "…"
	}
	return state, text
}

// LastMCPCalls returns the last call of each MCP server, by record. The chat and the result of a call in a deleted
// chat are empty.
func (m *Model) LastMCPCalls(ctx context.Context) (map[string]MCPCall, error) {
	all, err := store.List[MCPCall](ctx, m.Model, "last calls of MCP servers", `
		SELECT l.id, l.created, l.updated, l.first_seq,
			l.last_seq, l.removed, l.server, l.tool, coalesce(c.id, '') AS chat, l.state,
			CASE WHEN c.id IS NULL THEN '' ELSE l.result END AS result, l.duration_ms
		FROM mcp_calls l LEFT JOIN chats c ON c.id=l.chat AND NOT c.removed
		WHERE l.first_seq=(SELECT max(first_seq) FROM mcp_calls n WHERE n.server=l.server)`, dbx.Params{})
	last := map[string]MCPCall{}
	for _, c := range all {
		last[c.Server] = c
	}
	return last, err
}
