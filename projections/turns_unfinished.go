package projections

import (
	"context"

	"github.com/pocketbase/dbx"
	"pocketcoder/projections/store"
)

// UnfinishedTurns lists the sessions whose turn is running in OpenCode or waits there for a person. When OpenCode does not
// run one of them, its turn is lost.
func (m *Model) UnfinishedTurns(ctx context.Context) ([]Session, error) {
	return store.List[Session](ctx, m.Model, "unfinished turns",
		"SELECT * FROM sessions WHERE turn_state IN ('running', 'waiting') ORDER BY id", nil)
}

// CountRunningTurns counts the running turns of an engine by the account that owns the chat ("" for a chat without an owner). It
// leaves out turns that wait for a person's decision or answer: those may wait for days, and must not hold up other
// chats. It also leaves out turns whose tool call waits for a worker: the worker needs a turn to go on.
func (m *Model) CountRunningTurns(ctx context.Context, engine string) (map[string]int, error) {
	rows, err := store.List[struct {
		User string
		N    int
	}](ctx, m.Model, "running turns", `SELECT coalesce(c.user,'') AS user, count(*) AS n FROM sessions s LEFT JOIN chats c ON c.id=s.chat
		WHERE s.turn_state='running' AND s.parent='' AND s.engine={:engine} AND NOT EXISTS (
			SELECT 1 FROM chats w JOIN delegations d ON d.worker=w.id AND d.result='' WHERE w.parent=s.chat AND w.parent<>'' AND w.awaited)
		GROUP BY 1`, dbx.Params{"engine": engine})
	if err != nil {
		return nil, err
	}
	turns := map[string]int{}
	for _, r := range rows {
		turns[r.User] = r.N
	}
	return turns, nil
}

// UnfinishedStep returns the newest assistant message of a chat's own session, and whether the turn goes on after it,
// or would have gone on if OpenCode had not gone away. A person's denial without a reason ends it.
func (m *Model) UnfinishedStep(ctx context.Context, chat string) (Message, bool, error) {
	return store.First[Message](ctx, m.Model, "unfinished step of "+chat, `SELECT m.* FROM messages m WHERE m.id=(
			SELECT n.id FROM chats c JOIN messages n ON n.chat=c.id AND n.session=c.ai_engine_session_id
			WHERE c.id={:chat} AND n.role='assistant' AND NOT n.removed ORDER BY n.position DESC LIMIT 1)
		AND (`+EndingOfMessage("m")+`='' OR m.engine_message_status='failed' AND `+EndingOfMessage("m")+`='lost')`,
		dbx.Params{"chat": chat})
}
