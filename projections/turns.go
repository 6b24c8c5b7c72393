package projections

import (
	"context"

	"github.com/pocketbase/dbx"
	"pocketcoder/projections/store"
	"pocketcoder/projections/turnstate"
)

// ChatTurn is a turn of a chat and its result.
type ChatTurn struct {
	Title   string     `db:"title"`
	Message string     `db:"message"` // that began it, or the newest of several
	State   string     `db:"state"`   // of package turnstate; in a chat without a session the status of the message
	Error   store.JSON `db:"error"`   // of the message, or of the newest answer; empty for none
	Answer  string     `db:"answer"`  // the last text of its last step
	// empty while the turn is not over
	Ending turnstate.Ending `db:"ending"`
	// in one line: a request that was denied without a reason, so that the model stopped; empty for none
	DeniedRequest string `db:"denied"`
}

// LastTurn returns the last turn of a chat's own session, and whether there is one.
func (m *Model) LastTurn(ctx context.Context, chat string) (ChatTurn, bool, error) {
	return store.First[ChatTurn](ctx, m.Model, "turn of chat "+chat, `SELECT c.title, m.id AS message, coalesce(s.turn_state, m.user_message_status) AS state,
			coalesce(nullif(m.error_payload, ''), a.error_payload, '') AS error,
			coalesce((SELECT data->>'$.text' FROM parts WHERE message=a.id AND data->>'$.type'='text' AND NOT removed ORDER BY id DESC LIMIT 1), '') AS answer,
			coalesce((SELECT message FROM permissions WHERE chat=c.id AND message_id=a.ai_engine_message_id AND status='denied' AND reason='' LIMIT 1), '') AS denied,
			`+EndingOfTurn("coalesce(s.turn_state, m.user_message_status)", "a")+` AS ending
		FROM chats c LEFT JOIN sessions s ON s.id=c.ai_engine_session_id
		JOIN messages m ON m.id=(SELECT id FROM messages
			WHERE chat=c.id AND role IN ('user', 'system') AND session IN (c.ai_engine_session_id, '') AND NOT removed ORDER BY position DESC LIMIT 1)
		LEFT JOIN messages a ON a.id=(SELECT id FROM messages
			WHERE chat=c.id AND session=c.ai_engine_session_id AND role='assistant' AND NOT removed
				AND m.ai_engine_message_id<>'' AND parent_id>=m.ai_engine_message_id ORDER BY position DESC LIMIT 1)
		WHERE c.id={:chat} AND NOT c.removed`, dbx.Params{"chat": chat})
}
