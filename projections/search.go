package projections

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections/store"
)

// Hit is a text that was found.
type Hit struct {
	Kind     string `db:"kind" json:"kind"` // chat, message, request
	Chat     string `db:"chat" json:"chat"`
	Title    string `db:"title" json:"title"`       // of the chat
	ID       string `db:"id" json:"id"`             // of the message or request; of the chat for a title
	Role     string `db:"role" json:"role"`         // of a message's author
	Subagent bool   `db:"subagent" json:"subagent"` // a message of a subagent, which is not in the chat's own conversation
	Position int64  `db:"position" json:"position"` // the place in the chat; 0 for a title
	Created  string `db:"created" json:"created"`
	Snippet  Pieces `db:"snippet" json:"snippet"`
}

// Pieces are a text around what was found.
type Pieces []Piece

// Piece is a part of a text.
type Piece struct {
	Text  string `json:"text"`
	Match bool   `json:"match,omitempty"` // it is what was searched for
}

// Marks around a match in the snippets of FTS5. A text with such characters may get a mark too many.
const matchBegins, matchEnds = "\x02", "\x03"

// Scan reads a snippet.
func (p *Pieces) Scan(value any) error {
	text, ok := value.(string)
	if !ok && value != nil {
		return fmt.Errorf("read snippet: got %T", value)
	}
	*p = nil
	for i, run := range strings.Split(text, matchBegins) {
		match, rest, marked := strings.Cut(run, matchEnds)
		switch {
		case i == 0 || !marked:
			*p = append(*p, Piece{Text: strings.ReplaceAll(run, matchEnds, "")})
		default:
			*p = append(*p, Piece{match, true}, Piece{Text: strings.ReplaceAll(rest, matchEnds, "")})
		}
	}
	return nil
}

// MaxHits is the largest number of messages that are found.
const MaxHits = 50

const (
	snippetOf   = "snippet(%s, -1, char(2), char(3), '…', 24)"
	inChats     = " IN (SELECT value FROM json_each({:chats}))"
	selectChats = `SELECT 'chat' AS kind, c.id AS chat, c.title AS title, c.id AS id, '' AS role, 0 AS subagent, 0 AS position, c.last_active AS created, %s AS snippet
		FROM search_chats CROSS JOIN chats c ON c.rowid=search_chats.rowid AND NOT c.removed
		WHERE search_chats MATCH {:query} AND c.id` + inChats + ` ORDER BY search_chats.rowid DESC LIMIT {:n}`
	selectMessages = `SELECT 'message' AS kind, m.chat AS chat, c.title AS title, m.id AS id, m.role AS role, m.position AS position, m.created AS created,
			EXISTS (SELECT 1 FROM sessions s WHERE s.id=m.session AND s.parent<>'') AS subagent, %s AS snippet
		FROM search_parts CROSS JOIN parts p ON p.rowid=search_parts.rowid CROSS JOIN messages m ON m.id=p.message AND NOT m.removed AND m.role<>''
			CROSS JOIN chats c ON c.id=m.chat AND NOT c.removed
		WHERE search_parts MATCH {:query} AND m.chat` + inChats + ` ORDER BY search_parts.rowid DESC LIMIT {:n}`
	selectDecisions = `SELECT 'request' AS kind, p.chat AS chat, c.title AS title, p.id AS id, '' AS role, 0 AS subagent, p.asked_seq AS position, p.created AS created, %s AS snippet
		FROM search_decisions CROSS JOIN permissions p ON p.rowid=search_decisions.rowid AND NOT p.removed CROSS JOIN chats c ON c.id=p.chat AND NOT c.removed
		WHERE search_decisions MATCH {:query} AND p.chat` + inChats + ` ORDER BY search_decisions.rowid DESC LIMIT {:n}`
)

// Search returns the texts of chats that have all words of a query: titles, then the newest messages, then the newest
// decisions. All words must be in a text, in any order and case; the last one may be the beginning of a word. Nothing
// in a query is an operator of FTS5. A query without a word finds nothing.
func Search(ctx context.Context, db dbx.Builder, chats []string, query string) (hits []Hit, err error) {
	ids, _ := json.Marshal(chats) // texts
	params := dbx.Params{"query": searchExpression(query), "chats": string(ids), "n": MaxHits}
	if params["query"] == "" {
		return nil, nil
	}
	for _, from := range []struct{ index, sql string }{{"search_chats", selectChats}, {"search_parts", selectMessages},
		{"search_decisions", selectDecisions}} {
		var found []Hit
		sql := fmt.Sprintf(from.sql, fmt.Sprintf(snippetOf, from.index))
		if err := store.All(db.NewQuery(sql).WithContext(ctx).Bind(params), &found); err != nil {
			return nil, fmt.Errorf("search %s: %w", from.index, err)
		}
		hits = append(hits, oncePerMessage(found)...)
	}
	return hits, nil
}

// oncePerMessage leaves out further parts of a message that was found already.
func oncePerMessage(found []Hit) (hits []Hit) {
	known := map[string]bool{}
	for _, h := range found {
		if !known[h.ID] {
			known[h.ID] = true
			hits = append(hits, h)
		}
	}
	return hits
}

const maxSearchWords = 16

// searchExpression returns a query as an expression of FTS5: each word as a string, which FTS5 splits into tokens.
func searchExpression(query string) string {
	words := strings.Fields(strings.ReplaceAll(strings.ToValidUTF8(query, " "), "\x00", " "))
	if len(words) > maxSearchWords {
		words = words[:maxSearchWords]
	}
	for i, w := range words {
		words[i] = `"` + strings.ReplaceAll(w, `"`, `""`) + `"`
	}
	if len(words) == 0 {
		return ""
	}
	return strings.Join(words, " ") + "*"
}
