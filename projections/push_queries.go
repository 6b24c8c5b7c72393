package projections

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections/store"
)

// AskIn returns a request of a chat by the id that events use, and whether there is one. That is OpenCode's id, or the record id
// of a request over the API.
func (m *Model) AskIn(ctx context.Context, chat, permission string) (Permission, bool, error) {
	return store.First[Permission](ctx, m.Model, "permission "+permission, "SELECT * FROM permissions WHERE id IN ({:id}, {:own}) AND ai_engine_permission_id={:id} AND chat={:chat}",
		dbx.Params{"id": permission, "own": RecordID(permission), "chat": chat})
}

// LastTurn is the last turn of a chat and its result.
type LastTurn struct {
	Title         string     `db:"title"`
	Preview       string     `db:"preview"`
	Turn          string     `db:"turn"`
	Message       string     `db:"message"` // that began it, or the newest of several
	Status        string     `db:"status"`  // of that message
	Outcome       string     `db:"outcome"` // of the session's last turn
	Error         store.JSON `db:"error"`   // of the message, or of the newest answer; empty for none
	Answer        string     `db:"answer"`  // the last text of the newest answer
	DeniedRequest string     `db:"denied"`  // the request whose denial ended the turn, in one line; empty for none
}

// Failed reports whether the turn ended with an error.
func (t LastTurn) Failed() bool { return t.Status == statusFailed || t.Outcome == statusFailed }

// Completed reports whether the turn ended without an error.
func (t LastTurn) Completed() bool { return !t.Failed() && t.Outcome == statusCompleted }

// Denied reports whether the turn ended because a person denied a request without a reason. With a reason the model goes on.
func (t LastTurn) Denied() bool { return t.Completed() && t.DeniedRequest != "" }

// LastTurn returns the last turn of a chat's own session, and whether there is one.
func (m *Model) LastTurn(ctx context.Context, chat string) (LastTurn, bool, error) {
	return store.First[LastTurn](ctx, m.Model, "turn of chat "+chat, `SELECT c.title, c.preview, c.turn, m.id AS message, m.user_message_status AS status, coalesce(s.outcome, '') AS outcome,
			coalesce(nullif(m.error_payload, ''), a.error_payload, '') AS error,
			coalesce((SELECT data->>'$.text' FROM parts WHERE message=a.id AND data->>'$.type'='text' AND NOT removed ORDER BY id DESC LIMIT 1), '') AS answer,
			coalesce((SELECT message FROM permissions WHERE chat=c.id AND message_id=a.ai_engine_message_id AND status='denied' AND reason='' LIMIT 1), '') AS denied
		FROM chats c LEFT JOIN sessions s ON s.id=c.ai_engine_session_id
		JOIN messages m ON m.id=(SELECT id FROM messages
			WHERE chat=c.id AND role IN ('user', 'system') AND session IN (c.ai_engine_session_id, '') AND NOT removed ORDER BY position DESC LIMIT 1)
		LEFT JOIN messages a ON a.id=(SELECT id FROM messages
			WHERE chat=c.id AND session=c.ai_engine_session_id AND role='assistant' AND NOT removed ORDER BY position DESC LIMIT 1)
		WHERE c.id={:chat} AND NOT c.removed`, dbx.Params{"chat": chat})
}
