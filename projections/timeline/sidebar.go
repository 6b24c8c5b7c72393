package timeline

import (
	"context"
	"encoding/json"

	"github.com/pocketbase/dbx"

	"pocketcoder/events/opencode"
	"pocketcoder/projections"
	"pocketcoder/projections/turnstate"
)

// Sidebar holds what a page shows beside the conversation of a chat.
type Sidebar struct {
	Waiting []projections.ShownMessage // messages of a person that the assistant has not read yet, in order
	Answer  Answer                     // the newest answer
	Totals  Totals
	Prompt  string // OpenCode's id of the last message that can be undone, "" for none
	Undo    Undo
	Last    LastStep
	Retry   Retry
	Offer   Offer
}

// Answer names who wrote an answer.
type Answer struct {
	Agent    string `db:"agent"`
	Provider string `db:"provider"`
	Model    string `db:"model"`
}

// LastStep is the newest message of the assistant, and how the turn ended with it.
type LastStep struct {
	ID     string           `db:"id"`
	Shown  bool             `db:"shown"`  // the message itself shows how it ended
	Ending turnstate.Ending `db:"ending"` // empty while the turn is not over
}

// Retry is what OpenCode waits for before it tries the model provider again, in the chat or a subagent.
type Retry struct {
	Attempt int64  `db:"attempt"` // that failed; 0 if no session waits
	Message string `db:"message"`
	Next    string `db:"next"` // time of the next try; empty if it is unknown
}

// MayBeFile reports whether the provider has failed so often that a file of the message may be the cause.
func (r Retry) MayBeFile() bool { return r.Attempt >= opencode.FailingAttempts }

// Totals are the cost and the tokens of a chat and its subagents.
type Totals struct {
	Cost      float64 `db:"cost"`   // in US dollars
	TokensIn  int64   `db:"input"`  // including the cache
	TokensOut int64   `db:"output"` // including reasoning
}

// Undo is the revert that was requested after the chat's last message.
type Undo struct {
	Message string `db:"message"` // OpenCode's id of the first message that is undone; "" if nothing is
	State   string `db:"state"`   // of an effect
	Reason  string `db:"reason"`  // why it failed
	Kept    string `db:"kept"`    // the files that it kept because they were changed since, as a JSON list; empty for none
	Copies  string `db:"copies"`  // directory with earlier versions of kept files; empty for none
	// Files counts the changes to files that the undone messages recorded. OpenCode records them only in a Git repository.
	Files int `db:"files"`
}

var (
	selectWaiting = projections.SelectShown + `m.chat={:chat} AND ` + projections.IsQueued + ` AND NOT m.removed AND m.session IN ('', {:session})
		AND (m.user_message_status IN ('pending', 'sending') OR m.user_message_status='delivered' AND m.ai_engine_message_id>(
			SELECT parent_id FROM messages WHERE chat={:chat} AND session={:session} AND role='assistant'
				AND engine_message_status='processing' AND NOT removed ORDER BY position DESC LIMIT 1))
		ORDER BY m.position`
	selectAnswer = `SELECT agent, provider, model FROM messages
		WHERE chat={:chat} AND session={:session} AND role='assistant' AND NOT removed ORDER BY position DESC LIMIT 1`
	selectLast = `SELECT m.id, m.ending<>'' AS shown, CASE WHEN u.id IS NULL THEN m.ending WHEN u.answer=m.ai_engine_message_id THEN u.ending ELSE '' END AS ending
		FROM messages m JOIN chats c ON c.id=m.chat LEFT JOIN turns u ON u.id=c.current
		WHERE m.chat={:chat} AND m.session={:session} AND m.role='assistant' AND NOT m.removed ORDER BY m.position DESC LIMIT 1`
	selectRetry = `SELECT coalesce(retry->>'$.attempt', 0) AS attempt, coalesce(retry->>'$.message', '') AS message,
		coalesce(strftime('%Y-%m-%d %H:%M:%fZ', nullif(retry->>'$.next', 0)/1000.0, 'unixepoch'), '') AS next
		FROM sessions WHERE chat={:chat} AND retry<>'' AND waiting='' AND NOT removed ORDER BY id LIMIT 1`
	selectTotals = `SELECT coalesce(sum(cost), 0.0) AS cost, coalesce(sum(tokens_input+tokens_cache_read+tokens_cache_write), 0) AS input,
		coalesce(sum(tokens_output+tokens_reasoning), 0) AS output FROM usage WHERE chat={:chat} AND NOT removed`
	selectUndo = `SELECT message, state, reason, kept, copies,
			(SELECT count(*) FROM messages m JOIN parts p ON p.message=m.id AND NOT p.removed AND p.data->>'$.type'='patch'
				WHERE e.message<>'' AND m.chat={:chat} AND m.ai_engine_message_id>=e.message AND NOT m.removed) AS files
		FROM (SELECT message, state, reason, kept, copies FROM effects WHERE chat={:chat} AND kind='revert' AND NOT removed AND position>(
			SELECT coalesce(max(position), 0) FROM messages WHERE chat={:chat} AND role='user' AND NOT removed AND session IN ('', {:session}))
		ORDER BY position DESC LIMIT 1) e`
	selectPrompt = `SELECT ai_engine_message_id AS id FROM messages
		WHERE chat={:chat} AND session={:session} AND role='user' AND NOT removed AND ai_engine_message_id<>''
			AND ({:undone}='' OR ai_engine_message_id<{:undone})
		ORDER BY position DESC LIMIT 1`
)

func ReadSidebar(ctx context.Context, db dbx.Builder, c Chat) (a Sidebar, err error) {
	params := dbx.Params{"chat": c.ID, "session": c.Session}
	if err := list(ctx, db, &a.Waiting, "waiting messages of "+c.ID, selectWaiting, params); err != nil {
		return a, err
	}
	if a.Answer, err = first[Answer](ctx, db, "newest answer of "+c.ID, selectAnswer, params); err != nil {
		return a, err
	}
	if a.Totals, err = first[Totals](ctx, db, "usage of "+c.ID, selectTotals, dbx.Params{"chat": c.ID}); err != nil {
		return a, err
	}
	if a.Undo, err = first[Undo](ctx, db, "revert of "+c.ID, selectUndo, params); err != nil {
		return a, err
	}
	if a.Retry, err = first[Retry](ctx, db, "retry in "+c.ID, selectRetry, params); err != nil {
		return a, err
	}
	if a.Offer, err = ReadOffer(ctx, db, c.ID, c.Session); err != nil {
		return a, err
	}
	if a.Last, err = first[LastStep](ctx, db, "last step of "+c.ID, selectLast, params); err != nil {
		return a, err
	}
	params["undone"] = a.Undone()
	prompt, err := first[struct {
		ID string `db:"id"`
	}](ctx, db, "last message of "+c.ID, selectPrompt, params)
	a.Prompt = prompt.ID
	return a, err
}

// KeptFiles returns the absolute paths of the files that the revert kept.
func (u Undo) KeptFiles() (all []string) {
	_ = json.Unmarshal([]byte(u.Kept), &all) // the column always holds a list, or nothing
	return all
}

// Undone returns OpenCode's id of the first message that is undone, "" if nothing is.
func (a Sidebar) Undone() string {
	if a.Undo.State == projections.EffectFailed {
		return ""
	}
	return a.Undo.Message
}

// first returns the first row of a query, the zero value if there is none.
func first[R any](ctx context.Context, db dbx.Builder, what, query string, params dbx.Params) (row R, err error) {
	var rows []R
	if err = list(ctx, db, &rows, what, query, params); len(rows) > 0 {
		row = rows[0]
	}
	return row, err
}
