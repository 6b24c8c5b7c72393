// Package turns says how a turn of a chat ended.
package turns

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// Turn is a turn of a chat and its result.
type Turn struct {
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
func (t Turn) Failed() bool {
	return t.Status == projections.StatusFailed || t.Outcome == projections.StatusFailed
}

// Completed reports whether the turn ended without an error.
func (t Turn) Completed() bool { return !t.Failed() && t.Outcome == projections.StatusCompleted }

// Denied reports whether the turn ended because a person denied a request without a reason. With a reason the model goes on.
func (t Turn) Denied() bool { return t.Completed() && t.DeniedRequest != "" }

// Last returns the last turn of a chat's own session, and whether there is one.
func Last(ctx context.Context, m *projections.Model, chat string) (Turn, bool, error) {
	return store.First[Turn](ctx, m.Model, "turn of chat "+chat, `SELECT c.title, c.preview, c.turn, m.id AS message, m.user_message_status AS status, coalesce(s.outcome, '') AS outcome,
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
