package projections

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections/store"
)

type ShownMessage struct {
	Message
	Parts store.JSON `db:"shown" json:"parts"` // list, in the order of their ids
	// how the commands of its calls of bash ended: object of CommandEnd by the id of the call
	Commands store.JSON `db:"commands" json:"commands"`
	// the subagent's session whose message it is; empty in the chat's own conversation
	Subagent string `db:"subagent" json:"subagent"`
}

// Messages lists the messages of a chat and its subagents, in order. The parts of a message that OpenCode does not have
// yet are those that were submitted.
func (m *Model) Messages(ctx context.Context, chat string) ([]ShownMessage, error) {
	return store.List[ShownMessage](ctx, m.Model, "messages of "+chat,
		SelectShown+"m.chat={:chat} AND NOT m.removed AND m.role<>'' ORDER BY m.position", dbx.Params{"chat": chat})
}

// IsQueued is the SQL expression for a message m that a person can change while it is pending: a person's, or one of
// PocketCoder that only a person sends.
const IsQueued = "(m.role='user' OR m.held<>'' AND m.held_by='')"

// Queue lists the messages that wait to be sent in a chat and that a person can change, in order.
func (m *Model) Queue(ctx context.Context, chat string) ([]ShownMessage, error) {
	return store.List[ShownMessage](ctx, m.Model, "queue of "+chat,
		SelectShown+"m.chat={:chat} AND NOT m.removed AND "+IsQueued+" AND m.user_message_status='pending' ORDER BY m.position",
		dbx.Params{"chat": chat})
}

func (m *Model) Message(ctx context.Context, id string) (ShownMessage, bool, error) {
	return store.First[ShownMessage](ctx, m.Model, "message "+id,
		SelectShown+"m.id={:id} AND NOT m.removed AND m.role<>''", dbx.Params{"id": id})
}

// ChatOf returns the chat of the message or permission request with an id, also of a removed one. It reports whether
// there is one; if not, the id is unused.
func (m *Model) ChatOf(ctx context.Context, table, id string) (chat string, ok bool, err error) {
	row, ok, err := store.First[struct{ Chat string }](ctx, m.Model, "chat of "+table+" "+id,
		"SELECT chat FROM "+table+" WHERE id={:id}", dbx.Params{"id": id})
	return row.Chat, ok, err
}

// CommandsOf returns the SQL expression of ShownMessage.Commands for messages with an alias.
func CommandsOf(messages string) string {
	return `(SELECT json_group_object(call, json(ended)) FROM (SELECT x.call_id AS call, json_object('exec', x.id,
		'status', x.status, 'exit_code', x.exit_code, 'signal', x.signal, 'error', x.error,
		'edited', CASE WHEN x.original='' THEN '' ELSE coalesce((SELECT command FROM commands WHERE id=x.command), '') END) AS ended
		FROM executions x WHERE x.message=` + messages + `.ai_engine_message_id AND x.message<>'' AND x.session_id=` + messages + `.session
		AND x.status<>'executing' ORDER BY x.position))`
}

// SelectShown selects the shown content of messages m. A condition on m follows it.
var SelectShown = `SELECT m.*, ` + CommandsOf("m") + ` AS commands, coalesce(
		(SELECT '['||group_concat(data, ',')||']' FROM (SELECT data FROM parts WHERE message=m.id AND NOT removed ORDER BY id)), m.submitted) AS shown,
		coalesce((SELECT id FROM sessions WHERE id=m.session AND parent<>''), '') AS subagent
	FROM messages m WHERE `
