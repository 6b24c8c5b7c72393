package timeline

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// Chat is a chat with what a list says about it.
type Chat struct {
	projections.Chat
	Owner   string `db:"owner"`   // name of the account that shares it with the reader; empty for other chats
	State   string `db:"state"`   // of its current turn, in the words of package turnstate
	Ending  string `db:"ending"`  // of that turn; empty while it runs
	Pending int64  `db:"pending"` // requests and questions that wait for a person, those of subagents and delegates too
	Seen    int64  `db:"seen"`    // sequence up to which the reader has seen it, or need not have
	Opened  bool   `db:"opened"`  // the reader has seen something of it
	Unread  int64  `db:"unread"`  // messages of the assistant that the reader has not seen, or not seen to their end
	Newest  int64  `db:"newest"`  // sequence of the event that the reader must have seen so that nothing is unread
}

// treeOf are chat c and the delegates below it.
const treeOf = "(SELECT c.id UNION SELECT w.id FROM chats w WHERE w.root=c.id OR w.parent=c.id)"

// seenBy is up to where the reader has seen chat c. In a chat that the reader never saw, only what happened since the
// reader saw the first chat at all is new: nothing, if there was none.
const seenBy = `coalesce((SELECT seq FROM seen_positions WHERE user={:reader} AND chat=c.id),
		(SELECT min(first_seq) FROM seen_positions WHERE user={:reader}), (SELECT seq FROM checkpoint))`

// answers are the messages of the assistant in chat c, subagents' not among them.
const answers = `FROM messages m WHERE m.chat=c.id AND m.role='assistant' AND NOT m.removed
		AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id=m.session AND s.parent<>'')`

// An answer that was there when the reader left, and was written to its end afterwards, is unread too.
const selectChats = `SELECT c.*, CASE WHEN c.shared AND c.user<>{:reader} THEN
			coalesce((SELECT coalesce(nullif(u.name, ''), u.email) FROM users u WHERE u.id=c.user), '') ELSE '' END AS owner,
		coalesce((SELECT state FROM turns WHERE id=c.current), '') AS state,
		coalesce((SELECT ending FROM turns WHERE id=c.current), '') AS ending,
		(SELECT count(*) FROM waiting_requests p WHERE p.chat IN ` + treeOf + `) +
		(SELECT count(*) FROM waiting_questions q WHERE q.chat IN ` + treeOf + `) AS pending,
		(SELECT count(*) ` + answers + ` AND m.position>c.seen) +
		coalesce((SELECT m.written_seq>c.seen ` + answers + ` AND m.position<=c.seen ORDER BY m.position DESC LIMIT 1), 0) AS unread,
		max(coalesce((SELECT m.written_seq ` + answers + ` ORDER BY m.position DESC LIMIT 1), 0),
			coalesce((SELECT max(p.asked_seq) FROM permissions p WHERE p.chat=c.id), 0),
			coalesce((SELECT max(q.position) FROM questions q WHERE q.chat=c.id), 0)) AS newest
	FROM (SELECT c.*, ` + seenBy + ` AS seen, EXISTS (SELECT 1 FROM seen_positions WHERE user={:reader} AND chat=c.id) AS opened FROM chats c WHERE c.id IN (SELECT value FROM json_each({:ids}))) c
	ORDER BY c.last_active DESC, c.id`

// Chats returns the chats with these ids as an account reads them, those with the newest activity first.
func Chats(ctx context.Context, db dbx.Builder, reader string, ids []string) (chats []Chat, err error) {
	err = list(ctx, db, &chats, "chats", selectChats, dbx.Params{"ids": jsonList(ids), "reader": reader})
	return chats, err
}

// atWork is SQL for whether a turn of chat c, or of a delegate of it, has not ended, or something there waits for a
// person.
const atWork = `(EXISTS (SELECT 1 FROM turns t WHERE t.state IN ('queued', 'running', 'waiting') AND t.chat IN ` + treeOf + `)
	OR EXISTS (SELECT 1 FROM waiting_requests p WHERE p.chat IN ` + treeOf + `)
	OR EXISTS (SELECT 1 FROM waiting_questions q WHERE q.chat IN ` + treeOf + `))`

// CountAtWork returns how many of the chats with these ids work or wait for a person, by project.
func CountAtWork(ctx context.Context, db dbx.Builder, ids []string) (map[string]int, error) {
	var rows []struct {
		Project string
		N       int
	}
	err := list(ctx, db, &rows, "chats at work", `SELECT c.project AS project, count(*) AS n FROM chats c
		WHERE c.id IN (SELECT value FROM json_each({:ids})) AND `+atWork+` GROUP BY c.project`,
		dbx.Params{"ids": jsonList(ids)})
	counts := map[string]int{}
	for _, r := range rows {
		counts[r.Project] = r.N
	}
	return counts, err
}

// FirstNew returns the index of the first of a chat's entries that is new to the reader, or -1 if none is. An answer
// that was written to its end after the reader had left is new. What a person wrote is not.
func (c Chat) FirstNew(entries []Entry) int {
	halfSeen := -1
	for i, e := range entries {
		role := ""
		if e.Message != nil {
			role = e.Message.Role
		}
		switch {
		case e.Position > c.Seen && role != "user":
			if halfSeen >= 0 {
				return halfSeen
			}
			return i
		case e.Position <= c.Seen && role == "assistant":
			if halfSeen = -1; e.Message.Written > c.Seen {
				halfSeen = i
			}
		}
	}
	return halfSeen
}

func jsonList(ids []string) string {
	b, _ := json.Marshal(ids) // texts
	return string(b)
}

// list reads all rows of a query. what names the query in an error.
func list[R any](ctx context.Context, db dbx.Builder, rows *[]R, what, query string, params dbx.Params) error {
	if err := store.All(db.NewQuery(query).WithContext(ctx).Bind(params), rows); err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	return nil
}
