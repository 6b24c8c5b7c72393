package turns

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// NoFiles says why an undo of a message without Files puts no file back.
const NoFiles = "No file is put back: the turn changed none, or the workspace is no git repository."

// Has reports whether the conversation of a chat has a message, by OpenCode's id.
func Has(ctx context.Context, m *projections.Model, chat, message string) (bool, error) {
	_, found, err := store.First[struct {
		ID string `db:"id"`
	}](ctx, m.Model, "message "+message, `SELECT m.id FROM chats c JOIN messages m ON m.chat=c.id AND m.session=c.ai_engine_session_id
		WHERE c.id={:chat} AND m.ai_engine_message_id={:message} AND NOT m.removed`,
		dbx.Params{"chat": chat, "message": message})
	return found, err
}

// Files returns the sorted absolute paths of the files that a revert of a message, by OpenCode's id, restores. They are
// the files that changed since the message, by any program.
func Files(ctx context.Context, m *projections.Model, chat, message string) ([]string, error) {
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
