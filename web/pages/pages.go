// Package pages serves the web app: pages that a person logs in to, rendered on the server. They work without script,
// and with it they follow what happens.
//
// Promises: a page shows what the rules of the API let its account see, at one moment of the read models. A command of
// a form takes the path that the same command takes over the API. The pages have no state besides the cookie of the
// login. They run no script but ours, and show every text from outside as text: nothing in it runs, hides or reorders
// what a person reads.
//
// It must not decide anything, and must not know how events are stored or how OpenCode is reached.
package pages

import (
	"net/http"

	"pocketcoder/web/export"
	"pocketcoder/web/pages/changes"
	"pocketcoder/web/pages/conversation"
	"pocketcoder/web/pages/login"
	"pocketcoder/web/pages/messengers"
	"pocketcoder/web/pages/offline"
	"pocketcoder/web/pages/operations"
	"pocketcoder/web/pages/replay"
	"pocketcoder/web/pages/requests"
	"pocketcoder/web/pages/schedules"
	"pocketcoder/web/pages/search"
	"pocketcoder/web/pages/settings"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/pages/terminal"
)

// Handle adds all pages to a mux.
func Handle(mux *http.ServeMux, s *site.Site, exports *export.Exports) {
	login.Login{Site: s}.Handle(mux)
	offline.Offline{Site: s}.Handle(mux)
	conversation.Conversation{Site: s}.Handle(mux)
	requests.Requests{Site: s}.Handle(mux)
	search.Search{Site: s}.Handle(mux)
	changes.Changes{Site: s}.Handle(mux)
	terminal.Terminal{Site: s}.Handle(mux)
	schedules.Schedules{Site: s}.Handle(mux)
	messengers.Messengers{Site: s}.Handle(mux)
	settings.Settings{Site: s}.Handle(mux)
	operations.Operations{Site: s}.Handle(mux)
	replay.New(s, exports).Handle(mux)
	mux.Handle("GET /", s.NoPage())
}
