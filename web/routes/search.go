package routes

import (
	"context"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

// Search finds texts in the chats that an account may see. It never finds a text of another chat, and refuses a search
// that takes too long.
type Search struct{ API *api.Server }

const (
	maxSearchQuery   = 200 // characters
	searchedAtOnce   = 1000
	maxSearchedChats = 5 * searchedAtOnce // those with the newest activity
	searchTimeout    = 5 * time.Second
)

// answer describes the answer in the OpenAPI description.
type answer struct {
	Items []projections.Hit `json:"items"` // titles of chats, then messages, then decisions, each with the newest first
}

func (s Search) Routes() []api.Route {
	return []api.Route{{
		Method: "GET", Path: "/api/pocketcoder/search", About: "Find texts: all words of the query, the last one as the beginning of a word, in any case.", Access: api.Accounts,
		Query: []api.Param{{Name: "q", About: "text, at most 200 characters"}}, Answer: answer{}, Serve: s.serve,
	}}
}

func (s Search) serve(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	hits, err := s.Find(r.Context(), caller, r.URL.Query().Get("q"))
	if err != nil {
		return err
	}
	if hits == nil {
		hits = []projections.Hit{}
	}
	return api.WriteJSON(w, http.StatusOK, answer{hits})
}

// Find returns texts of the chats that an account may see.
func (s Search) Find(ctx context.Context, caller api.Caller, text string) (hits []projections.Hit, err error) {
	if utf8.RuneCountInString(text) > maxSearchQuery {
		return nil, api.BadField("q", "validation_max_text_constraint", "Must be no more than %d characters.", maxSearchQuery)
	}
	short, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	err = s.API.SlowView(short, caller.Key(), func(db dbx.Builder, _ uint64) error {
		chats, err := s.chats(short, db, caller)
		if err != nil {
			return err
		}
		hits, err = projections.Search(short, db, chats, text)
		return err
	})
	if err != nil && ctx.Err() == nil && short.Err() != nil {
		return nil, api.BadField("q", "too_slow", "The search takes longer than %v. Use a rarer word.", searchTimeout)
	}
	return hits, err
}

// chats returns the ids of the chats that an account may see, those with the newest activity first.
func (s Search) chats(ctx context.Context, db dbx.Builder, caller api.Caller) (ids []string, err error) {
	c, err := s.API.Collection("chats")
	if err != nil {
		return nil, err
	}
	for page := 1; len(ids) < maxSearchedChats; page++ {
		found, err := query.List(ctx, db, s.API.Catalogue, c, caller.Request(),
			query.Query{Sort: "-last_active", Fields: "id", SkipTotal: true, Page: page, PerPage: searchedAtOnce})
		if err != nil {
			return nil, err
		}
		for _, r := range found.Items {
			ids = append(ids, r.ID())
		}
		if len(found.Items) < searchedAtOnce {
			return ids, nil
		}
	}
	return ids, nil
}
