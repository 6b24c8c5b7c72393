package timeline

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections"
)

// Progress is the state of a chat's work, computed from the parts of its own conversation. Reading it scans every part,
// so it is slower than ReadSidebar.
type Progress struct {
	Todos   string `db:"todos"`   // JSON list of the assistant's todo list, "" for none
	Changed bool   `db:"changed"` // a turn changed files
}

var (
	ownAnswers = ` FROM messages a JOIN parts p ON p.message=a.id AND NOT p.removed
		WHERE a.chat={:chat} AND a.session={:session} AND a.role='assistant' AND NOT a.removed`
	changedFiles   = ownAnswers + ` AND p.data->>'$.type'='patch'`
	selectProgress = `SELECT EXISTS (SELECT 1` + changedFiles + `) AS changed, coalesce((SELECT p.data->'$.state.input.todos'` + ownAnswers + `
		AND p.data->>'$.tool'='todowrite' AND p.data->>'$.state.status'='completed' ORDER BY a.position DESC, p.id DESC LIMIT 1), '') AS todos`
	selectChangedTurns = projections.SelectShown + `m.chat={:chat} AND m.session={:session} AND m.role<>'assistant' AND NOT m.removed
		AND m.ai_engine_message_id IN (SELECT a.parent_id` + changedFiles + `) ORDER BY m.position DESC LIMIT {:n}`
	selectChangedFiles = `SELECT DISTINCT a.parent_id AS prompt, f.value AS file FROM messages a
		JOIN parts p ON p.message=a.id AND NOT p.removed, json_each(p.data, '$.files') f
		WHERE a.chat={:chat} AND a.session={:session} AND a.role='assistant' AND NOT a.removed AND p.data->>'$.type'='patch'
		ORDER BY f.value`
)

func ReadProgress(ctx context.Context, db dbx.Builder, c Chat) (Progress, error) {
	return first[Progress](ctx, db, "work of "+c.ID, selectProgress, dbx.Params{"chat": c.ID, "session": c.Session})
}

// ChangedTurns returns the messages that began the last n turns of a chat that changed files, newest first.
func ChangedTurns(ctx context.Context, db dbx.Builder, c Chat, n int) (turns []projections.ShownMessage, err error) {
	err = list(ctx, db, &turns, "turns of "+c.ID, selectChangedTurns,
		dbx.Params{"chat": c.ID, "session": c.Session, "n": n})
	return turns, err
}

// ChangedFiles returns the paths of the files that the turns of a chat changed, by OpenCode's id of the message that
// began the turn.
func ChangedFiles(ctx context.Context, db dbx.Builder, c Chat) (map[string][]string, error) {
	var rows []struct{ Prompt, File string }
	err := list(ctx, db, &rows, "changed files of "+c.ID, selectChangedFiles,
		dbx.Params{"chat": c.ID, "session": c.Session})
	files := map[string][]string{}
	for _, r := range rows {
		files[r.Prompt] = append(files[r.Prompt], r.File)
	}
	return files, err
}

// CallOf returns the tool call that started an execution, "" if none did.
func CallOf(ctx context.Context, db dbx.Builder, exec string) (string, error) {
	row, err := first[struct{ Call string }](ctx, db, "call of "+exec,
		"SELECT call_id AS call FROM executions WHERE id={:id}", dbx.Params{"id": exec})
	return row.Call, err
}
