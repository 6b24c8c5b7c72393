// Package search serves the page that finds texts in all chats.
//
// Promises: it shows what the search of the API finds, and leads to the place of each text in its chat.
//
// It must not know how texts are found.
package search

import (
	"net/http"
	"strconv"

	"github.com/a-h/templ"

	"pocketcoder/projections/textsearch"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/routes"
)

// Search serves the page.
type Search struct{ *site.Site }

func (s Search) Handle(mux *http.ServeMux) { mux.Handle("GET /search", s.Page(s.show)) }

func (s Search) show(r *http.Request, caller api.Caller) (templ.Component, error) {
	text := r.URL.Query().Get("q")
	hits, err := routes.Search{API: s.API}.Find(r.Context(), caller, text)
	if err != nil {
		return nil, err
	}
	pending, err := s.PendingCount(r.Context(), caller)
	if err != nil {
		return nil, err
	}
	return page(caller, pending, text, hits), nil
}

// pathOf is the address of a text in its chat.
func pathOf(h textsearch.Hit) string {
	path := site.ChatPath(h.Chat)
	if h.Kind == "chat" {
		return path
	}
	path += "?around=" + strconv.FormatInt(h.Position, 10)
	switch {
	case h.Kind == "request":
		return path + "#r-" + h.ID
	case !h.Subagent:
		return path + "#m-" + h.ID
	}
	return path
}

// hitKinds name the kinds of results other than messages.
var hitKinds = map[string]string{"chat": "Chat", "request": "Decision"}
