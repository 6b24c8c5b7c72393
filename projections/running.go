package projections

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections/store"
)

// RunningTurns counts the running turns of an engine by the account that owns the chat ("" for a chat without an owner): those of
// chats that have a turn running, or one that was handed over and has not shown yet. It leaves out turns that wait for a
// person's decision or answer: those may wait for days, and must not hold up other chats.
func (m *Model) RunningTurns(ctx context.Context, engine string) (map[string]int, error) {
	rows, err := store.List[struct {
		User string
		N    int
	}](ctx, m.Model, "running turns", `SELECT coalesce(c.user,'') AS user, count(*) AS n FROM (
		SELECT id, chat FROM sessions WHERE parent='' AND engine={:engine} AND status<>'idle' AND chat NOT IN (`+waiting+`)
		UNION SELECT id, chat FROM sessions s WHERE parent='' AND engine={:engine} AND awaiting<>''
			AND NOT EXISTS (SELECT 1 FROM messages WHERE ai_engine_message_id=s.awaiting AND user_message_status='sending')) t
		LEFT JOIN chats c ON c.id=t.chat GROUP BY 1`, dbx.Params{"engine": engine})
	if err != nil {
		return nil, err
	}
	turns := map[string]int{}
	for _, r := range rows {
		turns[r.User] = r.N
	}
	return turns, nil
}

// waiting selects the chats with an open request that the policy left to a person, or an open question, in OpenCode.
const waiting = `SELECT chat FROM permissions WHERE status='draft' AND referred AND NOT interrupted AND NOT removed AND source='opencode'
	UNION SELECT chat FROM questions WHERE status='asked' AND NOT interrupted AND NOT removed`

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
