package projections

import (
	"context"
	"slices"

	"github.com/pocketbase/dbx"
	"pocketcoder/projections/store"
)

// NoFiles says why an undo of a message without Files puts no file back.
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

// FilesSince returns the sorted absolute paths of the files that a revert of a message, by OpenCode's id, restores. They are
// the files that changed since the message, by any program.
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
