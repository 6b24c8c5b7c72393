package site

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/record"
	"pocketcoder/projections"
	"pocketcoder/projections/timeline"
	"pocketcoder/projections/turnstate"
	"pocketcoder/web/api"
	"pocketcoder/web/query"

	"github.com/pocketbase/dbx"
)

// MaxPending is the number of requests, and of questions, that the page of what waits shows at most.
const MaxPending = 200

// Pending returns what waits for a person in the chats in which an account decides, and the MCP servers that it may
// approve. The bar of the page shows how much it is.
func (s *Site) Pending(ctx context.Context, db dbx.Builder, caller api.Caller) ([]timeline.Entry, error) {
	requests, err := s.Visible(ctx, db, caller, "permissions", query.Query{PerPage: MaxPending,
		Sort: "created", Filter: `status = "` + events.Draft + `" && ` + record.DecidesInChat})
	if err != nil {
		return nil, err
	}
	questions, err := s.Visible(ctx, db, caller, "questions", query.Query{PerPage: MaxPending,
		Sort: "created", Filter: `status = "` + projections.QuestionAsked + `" && ` + record.DecidesInChat})
	if err != nil {
		return nil, err
	}
	servers, err := s.Visible(ctx, db, caller, mcpserver.Collection, query.Query{PerPage: MaxPending,
		Sort: "created", Filter: `status = "` + mcpserver.Pending + `"`})
	if err != nil {
		return nil, err
	}
	all, err := timeline.Pending(ctx, db, requests, questions, servers)
	if b := barOf(ctx); b != nil {
		b.pending, b.counted = len(all), true
	}
	return all, err
}

// Visible returns the ids of the records that the rules let an account list.
func (s *Site) Visible(ctx context.Context, db dbx.Builder, caller api.Caller, collection string,
	q query.Query) (ids []string, err error) {
	q.Fields = "id"
	all, err := s.List(ctx, db, caller, collection, q)
	for _, r := range all {
		ids = append(ids, r.ID())
	}
	return ids, err
}

// List returns the records that the rules let an account list.
func (s *Site) List(ctx context.Context, db dbx.Builder, caller api.Caller, collection string,
	q query.Query) ([]query.Record, error) {
	c, err := s.API.Collection(collection)
	if err != nil {
		return nil, err
	}
	q.SkipTotal = true
	page, err := query.List(ctx, db, s.API.Catalogue, c, caller.Request(), q)
	return page.Items, err
}

// Running reports whether the chat's turn can be stopped.
func Running(c timeline.Chat) bool { return !turnstate.Ended(c.State) }

func ChatPath(id string) string { return "/chats/" + id }

// PositionOf returns a position that the query names, 0 for none.
func PositionOf(r *http.Request, name string) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	position, err := strconv.ParseInt(text, 10, 64)
	if err != nil || position < 0 {
		return 0, api.BadField(name, "validation_invalid_type", "want the sequence of an event, got %q",
			api.Truncate(text, 40))
	}
	return position, nil
}

func ElementID(e timeline.Entry) string {
	switch {
	case e.Message != nil:
		return "m-" + e.ID
	case e.Request != nil:
		return "r-" + e.ID
	case e.Server != nil:
		return "s-" + e.ID
	}
	return "q-" + e.ID
}

// LivePath is the address of the stream of a page at a sequence. app.js replaces the sequence when it reconnects.
func LivePath(path string, seq uint64) string { return path + "?after=" + strconv.FormatUint(seq, 10) }

// Order is the place of an entry among all of its chat, as a text that sorts.
func Order(e timeline.Entry) string {
	pad := func(n int64, width int) string {
		text := strconv.FormatInt(n, 10)
		return strings.Repeat("0", max(0, width-len(text))) + text
	}
	return pad(e.Position, 16) + "." + pad(e.Index, 3)
}

// Chat returns a chat that the account may view.
func (s *Site) Chat(ctx context.Context, db dbx.Builder, caller api.Caller, id string) (chat timeline.Chat, err error) {
	c, err := s.API.Collection("chats")
	if err != nil {
		return chat, err
	}
	if _, err := query.View(ctx, db, s.API.Catalogue, c, id, caller.Request(), query.Query{Fields: "id"}); err != nil {
		return chat, err
	}
	chats, err := timeline.Chats(ctx, db, caller.Account, []string{id})
	if err != nil {
		return chat, err
	}
	return chats[0], nil // in the same transaction
}
