package projections

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections/store"
	"pocketcoder/projections/turnstate"
)

// The pending work of delegated messages stays in its list until an event records that it is done.

// EndedDelegateTurn is a delegated message whose turn is over and that has no result yet.
type EndedDelegateTurn struct {
	Delegate string           `db:"worker"`
	Message  string           `db:"message"`
	State    string           `db:"state"` // completed, failed, aborted, lost
	Text     string           `db:"text"`  // the last text of the answer
	Error    store.JSON       `db:"error"` // of the message, or of the answer; empty for none
	Ending   turnstate.Ending `db:"ending"`
}

// delegateIsPaused is the SQL condition that a person can still resume an ended turn: by a decision on a request that
// OpenCode forgot, by an answer, or by more budget. An approval counts until the read model has the prompt that resumes
// the turn. An OpenCode that stops in order ends turns with pending requests, and PocketCoder records the requests as
// interrupted after the next start. A request therefore counts while it is pending, unless the delegate is stopped.
const delegateIsPaused = `(
		EXISTS (SELECT 1 FROM permissions p WHERE p.chat=d.worker AND p.source='opencode' AND NOT p.removed AND (p.status='draft'
			OR p.interrupted AND p.status='authorized' AND NOT p.grant_used AND NOT EXISTS (SELECT 1 FROM messages r WHERE r.chat=p.chat AND r.role='system' AND r.position>p.decided_seq))
			AND NOT EXISTS (SELECT 1 FROM effects e WHERE e.chat=d.worker AND e.kind='abort' AND e.position>p.asked_seq))
		OR EXISTS (SELECT 1 FROM questions q WHERE q.chat=d.worker AND q.status='asked'
			AND NOT EXISTS (SELECT 1 FROM effects e WHERE e.chat=d.worker AND e.kind='abort' AND e.position>q.position))
	OR u.state='aborted' AND d.paused_by<>'' AND EXISTS (SELECT 1 FROM permissions b WHERE b.id=d.paused_by AND (b.status='draft'
		OR b.status='authorized' AND NOT EXISTS (SELECT 1 FROM messages r WHERE r.chat=d.worker AND r.role='system' AND r.position>b.decided_seq))))`

// EndedDelegateTurns lists the delegated messages whose turn is over and that have no result yet, in order.
func (m *Model) EndedDelegateTurns(ctx context.Context) ([]EndedDelegateTurn, error) {
	return store.List[EndedDelegateTurn](ctx, m.Model, "ended turns of delegates", `SELECT d.worker, d.id AS message, u.state, u.ending,
			coalesce((SELECT p.data->>'$.text' FROM messages a JOIN parts p ON p.message=a.id
				WHERE a.chat=d.worker AND a.session=c.ai_engine_session_id AND a.role='assistant' AND NOT a.removed AND NOT p.removed
				AND a.ai_engine_message_id>q.ai_engine_message_id AND a.ai_engine_message_id<=max(u.answer, r.ai_engine_message_id)
				AND p.data->>'$.type'='text' AND trim(p.data->>'$.text')<>'' ORDER BY a.ai_engine_message_id DESC, p.id DESC LIMIT 1), '') AS text,
			coalesce(nullif(q.error_payload, ''), (SELECT a.error_payload FROM messages a
				WHERE a.chat=d.worker AND a.ai_engine_message_id=u.answer AND u.answer<>''), '') AS error
		FROM delegations d JOIN chats c ON c.id=d.worker JOIN messages q ON q.id=d.id
		JOIN turns u ON u.id=d.prompt AND u.ended>0 JOIN messages r ON r.id=d.prompt
		WHERE d.result='' AND NOT `+delegateIsPaused+`
		ORDER BY d.position`, nil)
}

// UnreportedResult is a result or a silence of a delegate that was not sent to its parent yet. No turn runs in the
// parent.
type UnreportedResult struct {
	Parent   string `db:"parent"`
	Delegate string `db:"worker"`
	Title    string `db:"title"`
	Message  string `db:"message"`
	State    string `db:"state"`
	Text     string `db:"text"`
	Silent   string `db:"silent"` // time of the last event before the silence; empty for a result
}

// UnreportedResults lists the results and silences that were not sent to a parent without a running turn, by parent.
// Those of a parent are in the order in which the delegates finished.
func (m *Model) UnreportedResults(ctx context.Context) ([]UnreportedResult, error) {
	return store.List[UnreportedResult](ctx, m.Model, "unreported results", `SELECT d.parent, d.worker, w.title, d.id AS message, d.state,
			CASE WHEN d.result='' THEN '' ELSE d.text END AS text, CASE WHEN d.result='' THEN d.silent_since ELSE '' END AS silent
		FROM (SELECT * FROM delegations WHERE result<>'' AND reported='' AND NOT received
			UNION ALL SELECT * FROM delegations WHERE result='' AND silent_since<>'' AND silent_reported='') d
		JOIN chats w ON w.id=d.worker JOIN chats c ON c.id=d.parent AND NOT c.removed
		LEFT JOIN sessions s ON s.id=c.ai_engine_session_id
		WHERE NOT coalesce(s.runs, 0) AND coalesce(s.awaiting, '')=''
		ORDER BY d.parent, CASE WHEN d.result='' THEN d.last_seq ELSE d.result_seq END`, nil)
}

// RunningDelegate is a delegated message whose turn runs and waits for no person.
type RunningDelegate struct {
	Delegate string `db:"worker"`
	Message  string `db:"message"`
}

// RunningDelegates lists the delegated messages whose turn runs and that were not reported as silent.
func (m *Model) RunningDelegates(ctx context.Context) ([]RunningDelegate, error) {
	return store.List[RunningDelegate](ctx, m.Model, "running delegates", `SELECT d.worker, d.id AS message FROM delegations d
		JOIN chats c ON c.id=d.worker AND NOT c.removed JOIN turns u ON u.id=d.prompt AND u.state='running'
		WHERE d.result='' AND d.silent_since='' ORDER BY d.position`, nil)
}

// DelegateWorktree is the git worktree of a deleted delegate.
type DelegateWorktree struct {
	Delegate string `db:"worker"`
	Worktree string `db:"worktree"` // its root
	Branch   string `db:"branch"`
}

// OpenWorktrees lists the worktrees of deleted delegates whose turn is over, until an event says that
// they are closed.
func (m *Model) OpenWorktrees(ctx context.Context) ([]DelegateWorktree, error) {
	return store.List[DelegateWorktree](ctx, m.Model, "worktrees of deleted delegates", `SELECT c.id AS worker, c.worktree, c.branch
		FROM chats c LEFT JOIN sessions s ON s.id=c.ai_engine_session_id
		WHERE c.worktree<>'' AND c.removed AND c.kept='' AND NOT coalesce(s.runs, 0)
			AND NOT EXISTS (SELECT 1 FROM executions x WHERE x.chat=c.id AND x.status='executing') ORDER BY c.first_seq`, nil)
}

// RunningCommands lists the executions that run in a chat, without the shells of people.
func (m *Model) RunningCommands(ctx context.Context, chat string) (ids []string, err error) {
	rows, err := store.List[struct{ ID string }](ctx, m.Model, "running commands of "+chat,
		"SELECT id FROM executions WHERE chat={:chat} AND status='executing' AND NOT terminal ORDER BY position",
		dbx.Params{"chat": chat})
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return ids, err
}

// OrphanedDelegates lists the delegates whose parent was deleted, if the delegate or its parent has changed after a
// sequence.
func (m *Model) OrphanedDelegates(ctx context.Context, after uint64) (ids []string, err error) {
	rows, err := store.List[struct{ ID string }](ctx, m.Model, "delegates without a parent", `
		SELECT c.id, c.first_seq FROM chats p CROSS JOIN chats c ON c.parent=p.id AND c.parent<>'' AND NOT c.removed
			WHERE p.removed AND p.last_seq>{:after}
		UNION SELECT c.id, c.first_seq FROM chats c CROSS JOIN chats p ON p.id=c.parent AND p.removed
			WHERE c.parent<>'' AND NOT c.removed AND c.last_seq>{:after}
		ORDER BY 2`, dbx.Params{"after": after})
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return ids, err
}
