package timeline

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections"
)

// Chat is a chat with what a list says about it.
type Chat struct {
	projections.Chat
	State   string `db:"state"`   // of its own session's last turn, in the words of package turnstate
	Pending int64  `db:"pending"` // requests and questions that wait for a person, those of subagents too
}

// Conditions on requests p and questions q that wait for a person. The policy has not looked at other drafts yet.
const (
	pendingRequest  = "NOT p.removed AND p.status='draft' AND (p.referred OR p.interrupted)"
	pendingQuestion = "NOT q.removed AND q.status='asked'"
)

const selectChats = `SELECT c.*, coalesce((SELECT turn_state FROM sessions WHERE id=c.ai_engine_session_id), '') AS state,
		(SELECT count(*) FROM permissions p WHERE p.chat=c.id AND ` + pendingRequest + `) +
		(SELECT count(*) FROM questions q WHERE q.chat=c.id AND ` + pendingQuestion + `) AS pending
	FROM chats c WHERE c.id IN (SELECT value FROM json_each({:ids})) ORDER BY c.last_active DESC, c.id`

// Chats returns the chats with these ids, those with the newest activity first.
func Chats(ctx context.Context, db dbx.Builder, ids []string) (chats []Chat, err error) {
	err = list(ctx, db, &chats, "chats", selectChats, dbx.Params{"ids": jsonList(ids)})
	return chats, err
}

func jsonList(ids []string) string {
	b, _ := json.Marshal(ids) // texts
	return string(b)
}

// list reads all rows of a query. what names the query in an error.
func list[R any](ctx context.Context, db dbx.Builder, rows *[]R, what, query string, params dbx.Params) error {
	if err := db.NewQuery(query).WithContext(ctx).Bind(params).All(rows); err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	return nil
}
