// Package timeline reads chats as a page shows them: the list of chats, what happened in a chat in order, and the
// requests and questions that wait for a person.
//
// Promises: each function reads with the db that the caller gives it, so that one read transaction of the read models
// yields a page of one moment. An entry carries the sequence of the event that changed it last. The entries after a
// sequence therefore are all that a page of that moment lacks; removed entries are among them.
//
// It must not know who may see what, nor how anything is shown.
package timeline

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections"
)

// Entry is a message of a chat's own conversation, a permission request or a question of the chat or of a delegate
// below it, or an MCP server that waits for an approval. One of the four is set unless the entry was removed.
type Entry struct {
	ID       string
	Position int64 // sequence of the event in which it first appeared: the order of a chat
	Index    int64 // among the questions that one event asks
	Seq      int64 // sequence of the event that changed it last
	Removed  bool

	Message  *projections.ShownMessage
	Request  *Request
	Question *Question
	Server   *Server
}

// Server is an MCP server that waits for an approval.
type Server struct {
	Record   string `db:"record"`
	Fields   string `db:"fields"` // JSON object
	Position int64  `db:"last_seq"`
}

// Request is a permission request with the names that a card shows.
type Request struct {
	projections.Permission
	Asker     string `db:"asker"`      // title of the subagent or delegate; empty for the chat's own conversation
	Decider   string `db:"decider"`    // email of the account that decided; empty when no account did
	ChatTitle string `db:"chat_title"` // of its chat

	// JSON object with the arguments of a call of a tool of PocketCoder or of an MCP server; empty until OpenCode has
	// reported them, and if the model gave two calls one id
	Arguments string `db:"arguments"`
}

// Question is a question with the names that a card shows.
type Question struct {
	projections.Question
	Asker     string `db:"asker"`
	Decider   string `db:"decider"`
	ChatTitle string `db:"chat_title"`
}

// concernsPerson reports whether a person was ever asked, or decided before the policy left it to a person. What the
// policy allows by itself is seen in the tool call alone.
func (r Request) concernsPerson() bool {
	return r.Referred || r.Interrupted || r.Status == events.Denied ||
		r.Status == events.Expired || strings.HasPrefix(r.DecidedBy, events.UserActor(""))
}

// Window is the part of a chat that a page shows: the positions from From up to, but without, Before. A Before of 0
// sets no upper limit.
type Window struct {
	From, Before int64
}

// Latest returns the window of the last n messages below a position, or of the whole chat if before is 0. It also
// reports whether there are earlier messages.
func Latest(ctx context.Context, db dbx.Builder, chat string, before int64, n int) (w Window, earlier bool, err error) {
	w.Before = before
	var rows []struct {
		Position int64 `db:"position"`
	}
	err = list(ctx, db, &rows, "positions of "+chat, `SELECT position FROM messages
		WHERE chat={:chat} AND NOT removed AND role<>'' AND ({:before}=0 OR position<{:before}) ORDER BY position DESC LIMIT {:n}`,
		dbx.Params{"chat": chat, "before": before, "n": n + 1})
	if err != nil || len(rows) <= n {
		return w, false, err
	}
	w.From = rows[n-1].Position
	return w, true, nil
}

// EndAround returns the position before which a window of n messages around a position ends, 0 for the end of the chat.
func EndAround(ctx context.Context, db dbx.Builder, chat string, position int64, n int) (int64, error) {
	return WindowEnd(ctx, db, chat, position+1, n/2)
}

// WindowEnd returns the position before which a window of n messages from a position on ends, 0 for the end of the
// chat.
func WindowEnd(ctx context.Context, db dbx.Builder, chat string, from int64, n int) (int64, error) {
	end, err := first[struct {
		Position int64 `db:"position"`
	}](ctx, db, "positions of "+chat, `SELECT position FROM messages
		WHERE chat={:chat} AND NOT removed AND role<>'' AND position>={:from} ORDER BY position LIMIT 1 OFFSET {:n}`,
		dbx.Params{"chat": chat, "from": from, "n": n})
	return end.Position, err
}

// Entries returns the entries of a window that changed after a sequence, in the order of the chat. After sequence 0 it
// leaves out removed entries.
func Entries(ctx context.Context, db dbx.Builder, chat string, w Window, after uint64) ([]Entry, error) {
	params := dbx.Params{"chat": chat, "from": w.From, "before": w.Before, "after": after}
	var entries []Entry
	for _, read := range []func(context.Context, dbx.Builder, dbx.Params) ([]Entry, error){
		messageEntries, requestEntries, questionEntries,
	} {
		more, err := read(ctx, db, params)
		if err != nil {
			return nil, err
		}
		entries = append(entries, more...)
	}
	if after == 0 {
		entries = slices.DeleteFunc(entries, func(e Entry) bool { return e.Removed })
	}
	slices.SortFunc(entries, inOrder)
	return entries, nil
}

// inWindow is the condition on rows of the chat whose position is in a column.
func inWindow(table, column string) string {
	return table + ".chat={:chat} AND " + positioned(table, column)
}

// inTree is inWindow for rows of the chat and of the delegates below it.
func inTree(table, column string) string {
	return "(" + table + ".chat={:chat} OR " + table + ".chat IN (SELECT id FROM chats WHERE root={:chat} OR parent={:chat})) AND " +
		positioned(table, column)
}

func positioned(table, column string) string {
	position := table + "." + column
	return table + ".last_seq>{:after} AND " + position +
		">={:from} AND ({:before}=0 OR " + position + "<{:before})"
}

func messageEntries(ctx context.Context, db dbx.Builder, params dbx.Params) (entries []Entry, err error) {
	var rows []projections.ShownMessage
	err = list(ctx, db, &rows, "messages", projections.SelectShown+inWindow("m", "position")+" AND m.role<>''", params)
	for _, m := range rows {
		if m.Subagent == "" {
			entries = append(entries, Entry{ID: m.ID, Position: m.Position, Seq: m.Last, Removed: m.Removed, Message: &m})
		}
	}
	return entries, err
}

const selectRequests = `SELECT p.*, c.title AS chat_title, coalesce((SELECT title FROM subagents WHERE subagent_id=p.session_id AND chat=p.chat), '') AS asker,
		coalesce((SELECT email FROM users WHERE 'user:'||id=p.decided_by), '') AS decider,
		CASE WHEN p.permission GLOB 'pocketcoder_*' THEN coalesce((
			SELECT CASE WHEN count(*)=1 AND NOT max(t.reused) THEN max(json_remove(t.data -> '$.state.input', '$.caller')) END
			FROM messages m JOIN parts t ON t.message=m.id
			WHERE m.chat=p.chat AND m.ai_engine_message_id=p.message_id AND NOT t.removed AND t.data ->> '$.type'='tool'
			AND t.data ->> '$.callID'=p.call_id AND t.data ->> '$.state.status'<>'pending'), '') ELSE '' END AS arguments
	FROM permissions p JOIN chats c ON c.id=p.chat WHERE `

func requestEntries(ctx context.Context, db dbx.Builder, params dbx.Params) (entries []Entry, err error) {
	var rows []Request
	err = list(ctx, db, &rows, "requests", selectRequests+inTree("p", "asked_seq"), params)
	for _, r := range rows {
		if r.Chat != params["chat"] {
			r.Asker = r.ChatTitle
		}
		if r.concernsPerson() {
			entries = append(entries, r.entry())
		}
	}
	return entries, err
}

const selectQuestions = `SELECT q.*, c.title AS chat_title, coalesce((SELECT title FROM subagents WHERE subagent_id=q.session_id AND chat=q.chat), '') AS asker,
		coalesce((SELECT email FROM users WHERE 'user:'||id=q.replied_by), '') AS decider
	FROM questions q JOIN chats c ON c.id=q.chat WHERE `

func questionEntries(ctx context.Context, db dbx.Builder, params dbx.Params) (entries []Entry, err error) {
	var rows []Question
	err = list(ctx, db, &rows, "questions", selectQuestions+inTree("q", "position"), params)
	for _, q := range rows {
		if q.Chat != params["chat"] {
			q.Asker = q.ChatTitle
		}
		entries = append(entries, q.entry())
	}
	return entries, err
}

// Pending returns those of the requests, questions and MCP servers with these ids that wait for a person, oldest first.
func Pending(ctx context.Context, db dbx.Builder, requestIDs, questionIDs, serverIDs []string) ([]Entry, error) {
	var requests []Request
	err := list(ctx, db, &requests, "pending requests", selectRequests+`p.id IN (SELECT id FROM waiting_requests)
		AND p.id IN (SELECT value FROM json_each({:ids}))`,
		dbx.Params{"ids": jsonList(requestIDs)})
	if err != nil {
		return nil, err
	}
	var open []Question
	err = list(ctx, db, &open, "pending questions", selectQuestions+`q.id IN (SELECT id FROM waiting_questions)
		AND q.id IN (SELECT value FROM json_each({:ids}))`,
		dbx.Params{"ids": jsonList(questionIDs)})
	if err != nil {
		return nil, err
	}
	var servers []Server
	err = list(ctx, db, &servers, "pending MCP servers", `SELECT record, fields, last_seq FROM config
		WHERE collection='mcp_servers' AND NOT removed AND record IN (SELECT value FROM json_each({:ids}))`,
		dbx.Params{"ids": jsonList(serverIDs)})
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for _, r := range requests {
		entries = append(entries, r.entry())
	}
	for _, q := range open {
		entries = append(entries, q.entry())
	}
	for _, s := range servers {
		entries = append(entries, Entry{ID: s.Record, Position: s.Position, Seq: s.Position, Server: &s})
	}
	slices.SortFunc(entries, inOrder)
	return entries, nil
}

func (r Request) entry() Entry {
	return Entry{ID: r.ID, Position: r.AskedSeq, Seq: r.Last, Removed: r.Removed, Request: &r}
}

func (q Question) entry() Entry {
	return Entry{ID: q.ID, Position: q.Position, Index: q.Index, Seq: q.Last, Removed: q.Removed, Question: &q}
}

// FillDeciders sets the emails of the accounts that decided. The read models of one chat alone have no accounts.
func FillDeciders(entries []Entry, email func(actor string) string) {
	for _, e := range entries {
		if e.Request != nil {
			e.Request.Decider = email(e.Request.DecidedBy)
		}
		if e.Question != nil {
			e.Question.Decider = email(e.Question.RepliedBy)
		}
	}
}

func inOrder(a, b Entry) int {
	return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
}

// WritingSince returns the time at which the oldest answer that is being written in a chat began, "" if none is.
func WritingSince(ctx context.Context, db dbx.Builder, chat string) (string, error) {
	var rows []struct {
		Created string `db:"created"`
	}
	err := list(ctx, db, &rows, "answers of "+chat, `SELECT created FROM messages
		WHERE chat={:chat} AND NOT removed AND engine_message_status='processing' ORDER BY position LIMIT 1`, dbx.Params{"chat": chat})
	if err != nil || len(rows) == 0 {
		return "", err
	}
	return rows[0].Created, nil
}
