package timeline

import (
	"context"
	"slices"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections"
)

// Subagent is a subagent of a chat, and its place in the tree of them.
type Subagent struct {
	projections.Subagent
	Depth int // 0 for one that the chat's own conversation started
}

// Subagents returns the subagents of a chat as a tree: each follows the one that started it, the oldest first.
func Subagents(ctx context.Context, db dbx.Builder, chat string) (tree []Subagent, err error) {
	var all []projections.Subagent
	err = list(ctx, db, &all, "subagents of "+chat,
		"SELECT * FROM subagents WHERE chat={:chat} AND NOT removed ORDER BY position", dbx.Params{"chat": chat})
	if err != nil {
		return nil, err
	}
	isSubagent := func(session string) bool {
		return slices.ContainsFunc(all, func(a projections.Subagent) bool { return a.Session == session })
	}
	shown := map[string]bool{} // a session that started itself is shown once
	var add func(started func(projections.Subagent) bool, depth int)
	add = func(started func(projections.Subagent) bool, depth int) {
		for _, a := range all {
			if started(a) && !shown[a.ID] {
				shown[a.ID] = true
				tree = append(tree, Subagent{a, depth})
				add(func(b projections.Subagent) bool { return b.Delegating == a.Session }, depth+1)
			}
		}
	}
	add(func(a projections.Subagent) bool { return !isSubagent(a.Delegating) }, 0)
	add(func(projections.Subagent) bool { return true }, 0)
	return tree, nil
}

// TranscriptStart returns the position of the first of the last n messages of a subagent's session, 0 if it has fewer.
func TranscriptStart(ctx context.Context, db dbx.Builder, chat, session string, n int) (int64, error) {
	start, err := first[struct {
		Position int64 `db:"position"`
	}](ctx, db, "positions of "+session, `SELECT position FROM messages WHERE chat={:chat} AND session={:session}
		AND NOT removed AND role<>'' ORDER BY position DESC LIMIT 1 OFFSET {:n}`,
		dbx.Params{"chat": chat, "session": session, "n": n - 1})
	return start.Position, err
}

// Transcript returns the messages of a subagent's session from a position on that changed after a sequence, in order.
// After sequence 0 it leaves out removed messages.
func Transcript(ctx context.Context, db dbx.Builder, chat, session string, from int64,
	after uint64) (entries []Entry, err error) {
	var rows []projections.ShownMessage
	err = list(ctx, db, &rows, "messages of "+session, projections.SelectShown+`m.chat={:chat} AND m.session={:session}
		AND m.position>={:from} AND m.last_seq>{:after} AND m.role<>'' ORDER BY m.position`,
		dbx.Params{"chat": chat, "session": session, "from": from, "after": after})
	for _, m := range rows {
		if after > 0 || !m.Removed {
			entries = append(entries, Entry{ID: m.ID, Position: m.Position, Seq: m.Last, Removed: m.Removed, Message: &m})
		}
	}
	return entries, err
}
