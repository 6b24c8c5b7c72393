// Package mcpcalls is the read model of the calls of the tools of MCP servers.
//
// Promises: a row is one call, found by its session and its id. If a model uses an id again, the row is the newer call.
//
// It must not know whether a server works.
package mcpcalls

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// The states of a call.
const (
	Running   = "running"
	Completed = "completed"
	Failed    = "failed"
)

// Call is a call of a tool of an MCP server.
type Call struct {
	store.Record
	Server     string `db:"server"` // record of mcp_servers
	Tool       string `db:"tool"`   // as the server names it
	Chat       string `db:"chat"`
	State      string `db:"state"`  // Running, Completed, Failed
	Result     string `db:"result"` // the beginning of its text, or why there is no result
	DurationMS int64  `db:"duration_ms"`
}

// Update applies an event of a chat.
func Update(t *store.Table[Call], e events.Event, body any) {
	switch b := body.(type) {
	case events.MCPCalled:
		older, _ := t.Get(callID(b.Session, b.Call)) // a model may use the id of an earlier call again
		t.Put(Call{Record: store.Record{ID: older.ID, Updated: older.Updated}, Server: b.Server, Tool: b.Tool,
			Chat: e.Subject.ID, State: Running})
	case events.MCPReturned:
		if c, found := t.Get(callID(b.Session, b.Call)); found {
			c.State, c.Result = outcome(b)
			c.DurationMS = b.DurationMS
			t.Put(c)
		}
	}
}

func callID(session, call string) string { return store.RecordID(session + "\x00" + call) }

// maxResult bounds the result that is stored, in runes.
const maxResult = 200

// outcome returns the state of a call that has returned, and the beginning of its text.
func outcome(b events.MCPReturned) (state, text string) {
	var result struct {
		IsError bool
		Content []struct{ Text string }
	}
	state = Completed
	if text = b.Error; text == "" {
		_ = json.Unmarshal(b.Result, &result) // a result that cannot be read has no text
		for _, c := range result.Content {
			text = strings.TrimSpace(text + "\n" + c.Text)
		}
	}
	if b.Error != "" || result.IsError {
		state = Failed
	}
	if runes := []rune(text); len(runes) > maxResult {
		text = string(runes[:maxResult-1]) + "…"
	}
	return state, text
}

// Last returns the last call of each MCP server, by record. The chat and the result of a call in a deleted chat are
// empty.
func Last(ctx context.Context, m *store.Model) (map[string]Call, error) {
	all, err := store.List[Call](ctx, m, "last calls of MCP servers", `SELECT l.id, l.created, l.updated, l.first_seq,
			l.last_seq, l.removed, l.server, l.tool, coalesce(c.id, '') AS chat, l.state,
			CASE WHEN c.id IS NULL THEN '' ELSE l.result END AS result, l.duration_ms
		FROM mcp_calls l LEFT JOIN chats c ON c.id=l.chat AND NOT c.removed
		WHERE l.first_seq=(SELECT max(first_seq) FROM mcp_calls n WHERE n.server=l.server)`, dbx.Params{})
	last := map[string]Call{}
	for _, c := range all {
		last[c.Server] = c
	}
	return last, err
}
