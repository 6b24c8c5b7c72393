package projections

import (
	"context"
	"slices"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
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

// stateOfTurn returns the state of the turn of a message of chat c after an event. now is the state before the event.
func (t *tables) stateOfTurn(message string, c Chat, body any, now string) string {
	m, _ := t.messages.Get(message)
	own, _ := t.sessions.Get(c.Session)
	_, isDeleted := body.(events.Deleted)
	prompt := turnstate.Prompt{IsWithdrawn: m.UserStatus == statusWithdrawn, IsWaiting: m.undelivered(),
		HasFailed: m.UserStatus == statusFailed, IsDeleted: isDeleted, Session: own.TurnState, Outcome: own.Outcome}
	return prompt.State(now)
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

// UnfinishedTurns lists the sessions whose turn is running in OpenCode or waits there for a person. When OpenCode does
// not run one of them, its turn is lost.
func (m *Model) UnfinishedTurns(ctx context.Context) ([]Session, error) {
	return store.List[Session](ctx, m.Model, "unfinished turns",
		"SELECT * FROM sessions WHERE turn_state IN ('running', 'waiting') ORDER BY id", nil)
}

// CountRunningTurns counts the running turns of an engine by the account that owns the chat ("" for a chat without an
// owner). It leaves out turns that wait for a person's decision or answer: those may wait for days, and must not hold
// up other chats. It also leaves out turns whose tool call waits for a delegate: the delegate needs a turn to go on.
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

// NoFiles says why an undo of a message without FilesSince puts no file back.
const NoFiles = "No file was put back: the turns changed none, or the workspace is not in a Git repository."

// HasMessage reports whether the conversation of a chat has a message, by OpenCode's id.
func (m *Model) HasMessage(ctx context.Context, chat, message string) (bool, error) {
	_, found, err := store.First[struct {
		ID string `db:"id"`
	}](ctx, m.Model, "message "+message, `SELECT m.id FROM chats c JOIN messages m ON m.chat=c.id AND m.session=c.ai_engine_session_id
		WHERE c.id={:chat} AND m.ai_engine_message_id={:message} AND NOT m.removed`,
		dbx.Params{"chat": chat, "message": message})
	return found, err
}

// FilesSince returns the sorted absolute paths of the files that a revert of a message, by OpenCode's id, restores.
// They are the files that changed since the message, by any program.
func (m *Model) FilesSince(ctx context.Context, chat, message string) ([]string, error) {
	rows, err := store.List[struct {
		Path string `db:"path"`
	}](ctx, m.Model, "files of chat "+chat, `SELECT DISTINCT f.value AS path
		FROM messages m JOIN parts p ON p.message=m.id AND p.data->>'$.type'='patch' AND NOT p.removed, json_each(p.data, '$.files') f
		WHERE m.chat={:chat} AND m.ai_engine_message_id>={:message} AND NOT m.removed ORDER BY path`,
		dbx.Params{"chat": chat, "message": message})
	files := make([]string, len(rows))
	for i, row := range rows {
		files[i] = row.Path
	}
	return files, err
}

// ChangedFile is a file that turns of a chat changed.
type ChangedFile struct {
	Path   string // absolute
	Before string // OpenCode's snapshot before the first step that changed it
	After  string // OpenCode's snapshot after the last step that changed it, empty if that step was cut off
}

// ChangesSince returns the files that the own conversation of a chat changed since a message, by OpenCode's id.
func (m *Model) ChangesSince(ctx context.Context, chat, message string) (all []ChangedFile, err error) {
	rows, err := store.List[struct {
		Path   string `db:"path"`
		Before string `db:"before"`
		After  string `db:"after"`
	}](ctx, m.Model, "changes of chat "+chat, `SELECT f.value AS path, coalesce(p.data->>'$.hash', '') AS before,
			coalesce((SELECT e.data->>'$.snapshot' FROM parts e WHERE e.message=m.id AND e.data->>'$.type'='step-finish'
				AND NOT e.removed ORDER BY e.id DESC LIMIT 1), '') AS after
		FROM chats c JOIN messages m ON m.chat=c.id AND m.session=c.ai_engine_session_id
			JOIN parts p ON p.message=m.id AND p.data->>'$.type'='patch' AND NOT p.removed, json_each(p.data, '$.files') f
		WHERE c.id={:chat} AND m.ai_engine_message_id>={:message} AND NOT m.removed ORDER BY m.ai_engine_message_id, p.id`,
		dbx.Params{"chat": chat, "message": message})
	for _, row := range rows {
		i := slices.IndexFunc(all, func(f ChangedFile) bool { return f.Path == row.Path })
		if i < 0 {
			all = append(all, ChangedFile{Path: row.Path, Before: row.Before, After: row.After})
		} else {
			all[i].After = row.After
		}
	}
	return all, err
}
