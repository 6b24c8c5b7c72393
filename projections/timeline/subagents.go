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

// Transcript returns the last n messages of a subagent's session, in order.
func Transcript(ctx context.Context, db dbx.Builder, chat, session string,
	n int) (messages []projections.ShownMessage, err error) {
	err = list(ctx, db, &messages, "messages of "+session, projections.SelectShown+`m.chat={:chat} AND m.session={:session} AND NOT m.removed
		AND m.role<>'' ORDER BY m.position DESC LIMIT {:n}`, dbx.Params{"chat": chat, "session": session, "n": n})
	slices.Reverse(messages)
	return messages, err
}
