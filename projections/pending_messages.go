package projections

import (
	"context"
	"encoding/json"

	"github.com/pocketbase/dbx"
	"pocketcoder/projections/store"
)

// PendingMessage is a person's message on its way to OpenCode. Submitted is the list of its events.Part. EngineParts holds the
// ids of the parts in OpenCode, once they are decided.
type PendingMessage struct {
	PendingMessage
	ChatAgent     string `db:"chat_agent"`
	ChatTitle     string `db:"chat_title"`
	ChatTitled    bool   `db:"chat_titled"`    // the title does not follow that of the session
	ChatUser      string `db:"chat_user"`      // the chat's owner
	ChatDirectory string `db:"chat_directory"` // where a worker works; empty for the workspace
	ChatParent    string `db:"chat_parent"`    // of a worker
	ChatRoot      string `db:"chat_root"`      // of the tree of its workers
	Engine        string `db:"engine"`
	Bound         string `db:"bound"`     // the chat's own session; empty when it has none yet
	Directory     string `db:"directory"` // of that session
	Free          bool   `db:"free"`      // no turn is running there but this message's own
	// sequences of the last messages that were sent, of the chat and of all chats of its owner
	ChatStarted int64 `db:"chat_started"`
	UserStarted int64 `db:"user_started"`
}

const selectOutbox = `SELECT m.*, c.agent AS chat_agent, c.title AS chat_title, c.titled AS chat_titled, c.user AS chat_user, c.directory AS chat_directory, c.parent AS chat_parent, c.root AS chat_root, c.engine AS engine,
		c.started AS chat_started, (SELECT max(started) FROM chats WHERE user=c.user) AS user_started,
		c.ai_engine_session_id AS bound, coalesce(s.directory,'') AS directory,
		coalesce(s.turn_state NOT IN ('running', 'waiting') AND s.awaiting IN ('', m.ai_engine_message_id), 1) AS free
	FROM messages m JOIN chats c ON c.id=m.chat AND NOT c.removed LEFT JOIN sessions s ON s.id=c.ai_engine_session_id `

// PendingMessages lists messages that are pending or sending, in log order. It leaves out messages of deleted chats.
func (m *Model) PendingMessages(ctx context.Context) ([]PendingMessage, error) {
	return store.List[PendingMessage](ctx, m.Model, "outbox", selectOutbox+
		"WHERE m.user_message_status IN ('pending','sending') ORDER BY m.position", nil)
}

// ReportedMessage is a message of a user that OpenCode reported and that belongs to no submitted message.
type ReportedMessage struct {
	Session       string     `db:"session"`
	EngineMessage string     `db:"ai_engine_message_id"`
	Parts         store.JSON `db:"parts"` // list of the ids of its parts
}

// PartIDs returns OpenCode's ids of the parts, in order.
func (r ReportedMessage) PartIDs() (ids []string) {
	_ = json.Unmarshal([]byte(r.Parts), &ids) // the query makes the list
	return ids
}

// FindReportedMessage returns the reported message of a chat whose id ends with tail.
func (m *Model) FindReportedMessage(ctx context.Context, chat, tail string) (ReportedMessage, bool, error) {
	return store.First[ReportedMessage](ctx, m.Model, "reported messages of "+chat, `SELECT session, ai_engine_message_id,
			(SELECT json_group_array(id) FROM (SELECT id FROM parts p WHERE p.message=m.id AND NOT p.removed ORDER BY id)) AS parts
		FROM messages m WHERE chat={:chat} AND role='user' AND submitted='[]' AND NOT removed
			AND substr(ai_engine_message_id, -length({:tail}))={:tail} ORDER BY position LIMIT 1`,
		dbx.Params{"chat": chat, "tail": tail})
}

// UnansweredMessages lists messages that were delivered and have no answer yet.
func (m *Model) UnansweredMessages(ctx context.Context) ([]PendingMessage, error) {
	return store.List[PendingMessage](ctx, m.Model, "unanswered messages", selectOutbox+`
		WHERE m.ai_engine_message_id IN (SELECT awaiting FROM sessions WHERE turn_state IN ('running', 'waiting') AND processing='' AND awaiting<>'')
		AND m.user_message_status='delivered' ORDER BY m.position`, nil)
}
