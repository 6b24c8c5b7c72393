package pages

import (
	"net/http"
	"strconv"

	"github.com/a-h/templ"

	"pocketcoder/projections"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/routes"
)

func (p Pages) showSearch(r *http.Request, caller api.Caller) (templ.Component, error) {
	text := r.URL.Query().Get("q")
	hits, err := routes.Search{API: p.API}.Find(r.Context(), caller, text)
	return searchPage(text, hits), err
}

// hitPath is the address of a text in its chat.
func hitPath(h projections.Hit) string {
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
