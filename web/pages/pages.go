// Package pages serves the web app: pages that a person logs in to, rendered on the server. They work without script,
// and with it they follow what happens. The larger pages have packages of their own below this one.
//
// Promises: a page shows what the rules of the API let its account see, at one moment of the read models. A command of
// a form takes the path that the same command takes over the API. The pages have no state besides the cookie of the
// login. They run no script but ours, and show every text from outside as text: nothing in it runs, hides or reorders
// what a person reads. A password, the token of a login and the code of a pairing are shown at most once, to their
// account. What is too large for a page is left out as a whole or cut, and the page says so. A replay shows each moment
// as the chat's page showed it, and changes nothing.
//
// It must not decide anything, who may see a chat included, and must not know how events are stored or how OpenCode is
// reached.
package pages

import (
	"net/http"

	"pocketcoder/web/api"
	"pocketcoder/web/export"
	"pocketcoder/web/pages/conversation"
	"pocketcoder/web/pages/requests"
	"pocketcoder/web/pages/settings"
	"pocketcoder/web/pages/site"
)

// Pages serves the pages of this package.
type Pages struct{ *site.Site }

// Handle adds all pages to a mux.
func Handle(mux *http.ServeMux, s *site.Site, exports *export.Exports, document api.Document) {
	conversation.Conversation{Site: s}.Handle(mux)
	requests.Requests{Site: s}.Handle(mux)
	settings.Settings{Site: s}.Handle(mux)
	newReplay(s, exports).Handle(mux)

	p := Pages{s}
	mux.Handle("GET /login", p.Open(p.showLogin))
	mux.Handle("POST /login", p.Open(p.logIn))
	mux.Handle("GET /setup", p.Open(p.showSetup))
	mux.Handle("POST /setup", p.Open(p.setUp))
	mux.Handle("POST /logout", p.Command(p.logOut))
	mux.Handle("GET "+connectPath, p.Page(p.showConnect))
	mux.Handle("POST "+connectPath, p.Page(p.showConnect))
	mux.Handle("GET /account", p.Page(p.showAccount))
	mux.Handle("POST /account/logins/end", p.Command(p.endLogin))
	mux.Handle("POST /account/logins/{session}/end", p.Command(p.endLogin))
	mux.Handle("POST /account/browsers", p.Command(p.addBrowser))
	mux.Handle("POST /account/browsers/{device}/test", p.Command(p.testBrowser))
	mux.Handle("POST /account/browsers/{device}/remove", p.Command(p.removeBrowser))
	mux.Handle("GET /chats/{id}/changes", p.Page(p.showChanges))
	mux.Handle("GET /chats/{id}/terminal", p.Page(p.showTerminal))
	mux.Handle("GET /chats/{id}/terminal/live", p.Live(p.liveTerminal))
	mux.Handle("GET /chats/{id}/ports/{port}", p.File(p.openPort))
	mux.Handle("GET /chats/{id}/shell", p.StyledPage(p.showShell))
	mux.Handle("GET /chats/{id}/shell/socket", p.File(p.Shells.Serve))
	mux.Handle("GET /search", p.Page(p.showSearch))
	mux.Handle("GET /operations", p.Page(p.showOperations))
	mux.Handle("GET "+offlinePath, p.Open(p.showOffline))
	mux.Handle("GET /sw.js", p.Open(p.serveServiceWorker))
	mux.Handle("GET /docs", serveDocs(document))
	mux.HandleFunc("GET /static/{file}", site.ServeStatic)
	mux.Handle("GET /", s.NoPage())
}
