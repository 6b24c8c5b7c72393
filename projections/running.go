package projections

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pocketbase/dbx"
)

// RunningTurns counts the chats of an engine that have a turn running, or one that was handed over and has not shown yet.
func (m *Model) RunningTurns(ctx context.Context, engine string) (int, error) {
	rows, err := list[struct{ N int }](ctx, m, "running turns", `SELECT count(*) AS n FROM (
		SELECT id FROM sessions WHERE parent='' AND engine={:engine} AND status<>'idle'
		UNION SELECT id FROM sessions s WHERE parent='' AND engine={:engine} AND awaiting<>''
			AND NOT EXISTS (SELECT 1 FROM messages WHERE ai_engine_message_id=s.awaiting AND user_message_status='sending'))`,
		dbx.Params{"engine": engine})
	if err != nil {
		return 0, err
	}
	return rows[0].N, nil
}

// Answers is the reply as a list.
func (q Question) Answers() (answers []string, err error) {
	if q.Reply == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(q.Reply), &answers); err != nil {
		return nil, fmt.Errorf("read the answer to question %s/%d: %w", q.EngineQuestion, q.Index, err)
	}
	return answers, nil
}
