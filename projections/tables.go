package projections

import (
	"fmt"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// tables holds the rows that events change.
type tables struct {
	tx            *store.Tx
	sessions      *store.Table[Session]
	messages      *store.Table[Message]
	parts         *store.Table[part]
	engineIDs     *store.Table[engineID]
	chats         *store.Table[Chat]
	trees         *store.Table[tree]
	permissions   *store.Table[Permission]
	questions     *store.Table[Question]
	executions    executionTables
	artifacts     *store.Table[Artifact]
	subagents     *store.Table[Subagent]
	config        *store.Table[Config]
	users         *store.Table[User]
	effects       *store.Table[Effect]
	turns         *store.Table[Turn]
	delegations   *store.Table[Delegation]
	scheduleRuns  *store.Table[ScheduleRun]
	outgoing      *store.Table[ChannelMessage]
	failures      *store.Table[WebhookFailure]
	notifications *store.Table[Notification]
	mcpCalls      *store.Table[MCPCall]
	usage         *store.Table[Usage]
	seenPositions *store.Table[SeenPosition]
}

// openTables opens the tables. Feeds report changes of those that clients see.
func openTables(tx *store.Tx) *tables {
	const hidden, shown = false, true
	return &tables{
		tx:          tx,
		sessions:    store.OpenTable[Session](tx, "sessions", hidden),
		messages:    store.OpenTable[Message](tx, "messages", shown),
		parts:       store.OpenTable[part](tx, "parts", hidden), // clients see them in their messages
		engineIDs:   store.OpenTable[engineID](tx, "engine_ids", hidden),
		chats:       store.OpenTable[Chat](tx, "chats", shown),
		trees:       store.OpenTable[tree](tx, "trees", hidden),
		permissions: store.OpenTable[Permission](tx, "permissions", shown),
		questions:   store.OpenTable[Question](tx, "questions", shown),
		executions: executionTables{
			Tx:         tx,
			Executions: store.OpenTable[Execution](tx, "executions", shown),
			Commands:   store.OpenTable[Command](tx, "commands", shown),
		},
		artifacts:     store.OpenTable[Artifact](tx, "artifacts", shown),
		subagents:     store.OpenTable[Subagent](tx, "subagents", shown),
		config:        store.OpenTable[Config](tx, "config", shown),
		users:         store.OpenTable[User](tx, "users", shown),
		effects:       store.OpenTable[Effect](tx, "effects", hidden),
		turns:         store.OpenTable[Turn](tx, "turns", hidden),             // chats, messages and runs change with them
		delegations:   store.OpenTable[Delegation](tx, "delegations", hidden), // clients see the chats of delegates
		scheduleRuns:  store.OpenTable[ScheduleRun](tx, "schedule_runs", shown),
		outgoing:      store.OpenTable[ChannelMessage](tx, "channel_messages", shown),
		failures:      store.OpenTable[WebhookFailure](tx, "webhook_failures", shown),
		notifications: store.OpenTable[Notification](tx, "notifications", hidden),
		mcpCalls:      store.OpenTable[MCPCall](tx, "mcp_calls", hidden),
		usage:         store.OpenTable[Usage](tx, "usage", hidden), // it changes with the messages
		seenPositions: store.OpenTable[SeenPosition](tx, "seen_positions", shown),
	}
}

// apply passes the event to every projection of its scope.
func (t *tables) apply(e events.Event, body any) error {
	if mayChangeEffect(body) {
		t.tx.Wake()
	}
	for _, p := range projections {
		if p.update == nil || p.scope != "" && p.scope != e.Subject.Scope {
			continue
		}
		if err := p.update(t, e, body); err != nil {
			return fmt.Errorf("apply #%d %s to %s: %w", e.Seq, e.RawSubject, p.name, err)
		}
	}
	return nil
}
