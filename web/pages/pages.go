// Package pages serves the web app: pages that a person logs in to, rendered on the server. They work without script, and with
// it they follow what happens.
//
// Promises: a page shows what the rules of the API let its account see, at one moment of the read models. A command of a form
// takes the path that the same command takes over the API. The pages have no state besides the cookie of the login. They run no
// script but ours, and show every text from outside as text: nothing in it runs, hides or reorders what a person reads.
//
// It must not decide anything, and must not know how events are stored or how OpenCode is reached.
package pages

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"

	"github.com/a-h/templ"

	"pocketcoder/events/log"
	"pocketcoder/web/api"
	"pocketcoder/web/chats"
	"pocketcoder/web/pages/texts"
	"pocketcoder/web/records"
)

// Pages serves the web app.
type Pages struct {
	API     *api.Server
	Log     *log.Log
	Records *records.Records
	Chats   *chats.Chats
}

// Policy lets a page use our own script and style files and speak to us, and nothing else. Script may turn text into elements
// in one place alone, the policy "pocketcoder" of app.js.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; form-action 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types pocketcoder"

// SetHeaders sets what all pages tell browsers. With the policy no-referrer, Chromium sends "Origin: null" with a form, which
// is refused.
func SetHeaders(h http.Header) {
	h.Set("Content-Security-Policy", Policy)
	h.Set("Referrer-Policy", "same-origin")
}

// Handle adds all pages to a mux.
func (p *Pages) Handle(mux *http.ServeMux) {
	mux.Handle("GET /login", p.open(p.showLogin))
	mux.Handle("POST /login", p.open(p.logIn))
	mux.Handle("GET /setup", p.open(p.showSetup))
	mux.Handle("POST /setup", p.open(p.setUp))
	mux.Handle("POST /logout", p.command(p.logOut))
	mux.Handle("GET /account", p.page(p.showAccount))
	mux.Handle("POST /account/logins/end", p.command(p.endLogin))
	mux.Handle("POST /account/logins/{session}/end", p.command(p.endLogin))
	mux.Handle("GET /{$}", openChat(p.page(p.listChats)))
	mux.Handle("GET /live", p.live(p.liveChats))
	mux.Handle("POST /chats", p.command(p.startChat))
	mux.Handle("GET /requests", p.page(p.listRequests))
	mux.Handle("GET /requests/live", p.live(p.liveRequests))
	mux.Handle("GET /requests/{id}", p.page(p.showRequest))
	mux.Handle("GET /requests/{id}/live", p.live(p.liveRequest))
	mux.Handle("GET /chats/{id}", p.page(p.showChat))
	mux.Handle("POST /chats/{id}", p.command(p.changeChat))
	mux.Handle("GET /chats/{id}/live", p.live(p.liveChat))
	mux.Handle("POST /chats/{id}/messages", p.command(p.sendMessage))
	mux.Handle("POST /chats/{id}/abort", p.command(p.abortTurn))
	mux.Handle("GET /chats/{id}/changes", p.page(p.showChanges))
	mux.Handle("POST /chats/{id}/undo", p.command(p.undo))
	mux.Handle("POST /chats/{id}/fork", p.command(p.fork))
	mux.Handle("POST /chats/{id}/requests/{request}", p.command(p.decide))
	mux.Handle("POST /chats/{id}/questions/{question}", p.command(p.answerQuestion))
}

// open serves what needs no login.
func (p *Pages) open(serve func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		SetHeaders(w.Header())
		api.BoundBody(w, r, p.API.Guest(r))
		if err := p.loading(); err != nil {
			p.fail(w, r, err)
			return
		}
		if err := serve(w, r); err != nil {
			p.fail(w, r, err)
		}
	})
}

// private serves what needs a login.
func (p *Pages) private(serve func(http.ResponseWriter, *http.Request, api.Caller) error, guest http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		SetHeaders(w.Header())
		who := p.caller(r)
		if who.Identity == nil {
			guest(w, r)
			return
		}
		api.BoundBody(w, r, who)
		err := p.loading()
		if err == nil {
			err = serve(w, r, who)
		}
		if err != nil && r.Context().Err() == nil {
			p.fail(w, r, err)
		}
	})
}

// page serves a page to an account. A guest goes to the login, and from there to the page.
func (p *Pages) page(show func(*http.Request, api.Caller) (templ.Component, error)) http.Handler {
	return p.private(func(w http.ResponseWriter, r *http.Request, who api.Caller) error {
		c, err := show(r, who)
		if err != nil {
			return err
		}
		return render(w, r, http.StatusOK, c)
	}, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/login?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
	})
}

// command serves a form. do returns the page to show next.
func (p *Pages) command(do func(http.ResponseWriter, *http.Request, api.Caller) (next string, err error)) http.Handler {
	return p.private(func(w http.ResponseWriter, r *http.Request, who api.Caller) error {
		if err := parseForm(r); err != nil {
			return err
		}
		next, err := do(w, r, who)
		if err != nil {
			return err
		}
		if wantsText(r) {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		http.Redirect(w, r, next, http.StatusSeeOther)
		return nil
	}, func(w http.ResponseWriter, r *http.Request) { p.fail(w, r, api.Unauthorized()) })
}

// loading returns why pages cannot be shown yet.
func (p *Pages) loading() error {
	if p.API.Loading == nil {
		return nil
	}
	return p.API.Loading()
}

// render answers with a page. It is rendered as a whole first, so that an error does not leave half a page.
func render(w http.ResponseWriter, r *http.Request, status int, c templ.Component) error {
	var b bytes.Buffer
	if err := c.Render(r.Context(), &b); err != nil {
		return err
	}
	return api.Write(w, status, "text/html; charset=utf-8", b.Bytes())
}

// fail answers with what went wrong: a page, or one line for app.js.
func (p *Pages) fail(w http.ResponseWriter, r *http.Request, err error) {
	problem := api.ProblemOf(err)
	if problem.Status == http.StatusInternalServerError {
		p.API.Logger.Error("serve page", "path", r.URL.Path, "err", err)
	}
	text := problemText(problem)
	if wantsText(r) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(problem.Status)
		_, _ = w.Write([]byte(text)) // a client that went away misses it
		return
	}
	if problem.Status == http.StatusUnauthorized {
		http.Redirect(w, r, "/login", http.StatusSeeOther)
		return
	}
	if err := render(w, r, problem.Status, problemPage(text)); err != nil {
		p.API.Logger.Error("serve page", "path", r.URL.Path, "err", err)
	}
}

// problemText returns a problem in one sentence after another, what is wrong with each field among them.
func problemText(p api.Problem) string {
	if p.Status == http.StatusUnauthorized {
		return texts.LoggedOut
	}
	text := []string{p.Message}
	for _, fault := range p.Data {
		if f, ok := fault.(api.Fault); ok && !strings.Contains(p.Message, f.Message) {
			text = append(text, f.Message)
		}
	}
	return strings.Join(text, " ")
}

// wantsText reports whether app.js sends a form: it shows an error without leaving the page.
func wantsText(r *http.Request) bool { return r.Header.Get("Accept") == "text/plain" }

// parseForm reads the fields of a form.
func parseForm(r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return api.BadRequest("The form could not be read: %v.", err)
	}
	return nil
}

// field returns a text of a form with the line ends of Unix: browsers send those of forms as CRLF.
func field(r *http.Request, name string) string {
	return strings.ReplaceAll(r.PostFormValue(name), "\r\n", "\n")
}
