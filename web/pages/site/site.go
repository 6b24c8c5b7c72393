// Package site is what all pages have in common: the check of the login, forms, errors, the frame around a page, and
// the stream that keeps an open page up to date.
//
// Promises: Page, Command and Live serve nothing to a guest. A page is rendered as a whole before a byte of it is
// sent. A live page shows the read models as they are at a sequence, and resumes there.
//
// It must not know any page.
package site

import (
	"bytes"
	"crypto/rand"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/a-h/templ"
	"github.com/nats-io/nats.go"

	"pocketcoder/events/log"
	"pocketcoder/web/api"
	"pocketcoder/web/ports"
	"pocketcoder/web/records"
	"pocketcoder/web/routes"
	"pocketcoder/web/stream"
)

// Product is the name of the product.
const Product = "PocketCoder"

// Texts that several pages show.
const (
	LeftOut      = "… %d bytes left out …"
	ToolOfServer = "%s (MCP server %s)" // a tool, and the MCP server that has it
	UndoFrom     = "Undo this message and all after it"
	ApprovedBy   = "approved by %s"
	DeniedBy     = "denied by %s"
	Unsent       = "The server did not answer. Perhaps this was sent already."
)

// Roles name the authors of messages.
var Roles = map[string]string{"user": "You", "assistant": "Assistant", "system": Product}

// states describe the states of a turn. A turn that completed needs no word.
var states = map[string]string{
	"queued": "queued", "running": "working", "waiting": "needs you",
	"failed": "failed", "aborted": "stopped", "lost": "lost",
}

// Site holds the parts of the system that pages use.
type Site struct {
	API       *api.Server
	Log       *log.Log
	Conn      *nats.Conn // may read what the streams are, and may call workers
	Pool      string     // of the workers
	Records   *records.Records
	Chats     *routes.Chats
	Delegates *routes.Delegates
	// the routes of schedules besides their records
	Schedules *routes.Schedules
	Agents    *routes.Agents
	Channels  *routes.Channels
	Ports     *ports.Ports
	Shells    *routes.Shells
	// where administrators choose directories of projects; empty for nowhere
	ProjectsBelow string

	LivePages int          // most live pages of an account; 0 is defaultLivePages
	live      stream.Slots // the streams of live pages
}

// contentPolicy allows a page only our own script and style files, and connections to this server. Script may turn text
// into elements in one place alone, the policy "pocketcoder" of app.js.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; worker-src 'self'; form-action 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types pocketcoder"

// AccountHeader names the account for which a page was rendered. A form that has it is refused for any other account:
// it was filled in by the account, and sent after another one had logged in.
const AccountHeader = "Pocketcoder-Account"

// SetHeaders sets what all pages tell browsers. With the policy no-referrer, Chromium sends "Origin: null" with a
// form, which is refused.
func SetHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Referrer-Policy", "same-origin")
}

// Open serves what needs no login.
func (s *Site) Open(serve func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		SetHeaders(w.Header())
		api.BoundBody(w, r, s.API.Guest(r))
		if err := s.loading(); err != nil {
			s.fail(w, r, err)
			return
		}
		if err := serve(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

// private serves what needs a login.
func (s *Site) private(serve func(http.ResponseWriter, *http.Request, api.Caller) error,
	guest http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		SetHeaders(w.Header())
		caller := s.Caller(r)
		if caller.Identity == nil {
			guest(w, r)
			return
		}
		w.Header().Set(AccountHeader, caller.Account)
		r = withBar(r, caller)
		api.BoundBody(w, r, caller)
		err := s.loading()
		if err == nil {
			r, err = api.WithDeadline(r)
		}
		if err == nil {
			err = serve(w, r, caller)
		}
		if err != nil && r.Context().Err() == nil {
			s.fail(w, r, err)
		}
	})
}

// Page serves a page to an account. A guest goes to the login, and from there to the page.
func (s *Site) Page(show func(*http.Request, api.Caller) (templ.Component, error)) http.Handler {
	return s.private(func(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
		if r.Method == http.MethodPost {
			if err := ParseForm(r); err != nil {
				return err
			}
		}
		c, err := show(r, caller)
		if err == nil {
			err = s.fillBar(r.Context())
		}
		if err != nil {
			return err
		}
		return Render(w, r, http.StatusOK, c)
	}, toLogin)
}

// StyledPage is Page for a page whose script makes style elements. The browser applies those that carry the nonce.
func (s *Site) StyledPage(show func(r *http.Request, caller api.Caller, nonce string) (templ.Component,
	error)) http.Handler {
	return s.private(func(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
		nonce := rand.Text()
		c, err := show(r, caller, nonce)
		if err == nil {
			err = s.fillBar(r.Context())
		}
		if err != nil {
			return err
		}
		w.Header().Set("Content-Security-Policy", strings.Replace(contentPolicy, "style-src 'self'",
			"style-src 'self' 'nonce-"+nonce+"'", 1))
		return Render(w, r, http.StatusOK, c)
	}, toLogin)
}

// File serves a response that is not a page, such as a download. A guest goes to the login.
func (s *Site) File(serve func(http.ResponseWriter, *http.Request, api.Caller) error) http.Handler {
	return s.private(serve, toLogin)
}

// toLogin leads a guest to the login, and from there to the page.
func toLogin(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/login?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
}

// Command serves a form. do returns the page to show next.
func (s *Site) Command(do func(http.ResponseWriter, *http.Request, api.Caller) (next string, err error)) http.Handler {
	return s.private(func(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
		if account := r.Header.Get(AccountHeader); account != "" && account != caller.Account {
			return api.Forbidden("Another account filled in this form. Open the page again.")
		}
		if err := ParseForm(r); err != nil {
			return err
		}
		next, err := do(w, r, caller)
		if err != nil {
			return err
		}
		if wantsText(r) {
			w.Header().Set("Location", next) // app.js goes there if it is another page
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		http.Redirect(w, r, next, http.StatusSeeOther)
		return nil
	}, func(w http.ResponseWriter, r *http.Request) { s.fail(w, r, api.Unauthorized()) })
}

// loading returns why pages cannot be shown yet.
func (s *Site) loading() error {
	if s.API.Loading == nil {
		return nil
	}
	return s.API.Loading()
}

// Render answers with a page. It is rendered as a whole first, so that an error does not leave half a page.
func Render(w http.ResponseWriter, r *http.Request, status int, c templ.Component) error {
	var b bytes.Buffer
	if err := c.Render(r.Context(), &b); err != nil {
		return err
	}
	return api.Write(w, status, "text/html; charset=utf-8", compressed(w, r, b.Bytes()))
}

// Gone is the error of a page that is gone, with a link to what is left of it.
type Gone struct {
	api.Problem
	Path, Link string
}

func (g Gone) Unwrap() error { return g.Problem }

// fail answers with what went wrong: a page, or one line for app.js.
func (s *Site) fail(w http.ResponseWriter, r *http.Request, err error) {
	problem, next := api.ProblemOf(err), Gone{Path: "/", Link: "Back to the chats"}
	errors.As(err, &next)
	if problem.Status == http.StatusInternalServerError {
		s.API.Logger.Error("serve page", "path", r.URL.Path, "err", err)
	}
	problem.SetRetry(w.Header())
	text := ProblemText(problem)
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
	if caller := s.Caller(r); caller.Identity != nil {
		r = withBar(r, caller)
		if s.loading() == nil {
			_ = s.fillBar(r.Context()) // the page is about another error
		}
	}
	if err := Render(w, r, problem.Status, problemPage(text, next)); err != nil {
		s.API.Logger.Error("serve page", "path", r.URL.Path, "err", err)
	}
}

// NoPage serves the addresses that no page has.
func (s *Site) NoPage() http.Handler {
	return s.Open(func(http.ResponseWriter, *http.Request) error { return api.NotFound() })
}

// ProblemText returns a problem in one sentence after another, what is wrong with each field among them.
func ProblemText(p api.Problem) string {
	if p.Status == http.StatusUnauthorized {
		return "You are logged out. Log in again."
	}
	text := []string{p.Message}
	if p.Message == api.NotFound().Message {
		text[0] = "This page does not exist, or you may not see it."
	}
	for _, field := range slices.Sorted(maps.Keys(p.Data)) {
		f, ok := p.Data[field].(api.Fault)
		switch {
		case !ok:
		// a sentence needs none in front
		case strings.HasSuffix(f.Message, ".") && strings.HasSuffix(p.Message, ": "+f.Message):
			text[0] = f.Message
		case strings.Contains(p.Message, f.Message):
		case strings.Contains(f.Message, field):
			text = append(text, f.Message)
		default:
			text = append(text, field+": "+f.Message)
		}
	}
	return strings.Join(text, " ")
}

// wantsText reports whether app.js sends a form: it shows an error without leaving the page.
func wantsText(r *http.Request) bool { return r.Header.Get("Accept") == "text/plain" }

// maxFormMemory is how much of a form is kept in memory, in bytes. Larger files are kept on disk until the request
// ends.
const maxFormMemory = 1 << 20

// ParseForm reads the fields and files of a form.
func ParseForm(r *http.Request) error {
	err := r.ParseForm() // first: for a form that is not multipart, the next call returns another error
	if err == nil {
		err = r.ParseMultipartForm(maxFormMemory)
	}
	if errors.Is(err, http.ErrNotMultipart) {
		err = nil
	}
	if errors.As(err, new(*http.MaxBytesError)) || errors.As(err, new(api.Problem)) {
		return err
	}
	if err != nil {
		return api.BadRequest("The form could not be read: %v.", err)
	}
	return nil
}

// Field returns a text of a form with the line ends of Unix: browsers send those of forms as CRLF.
func Field(r *http.Request, name string) string {
	return strings.ReplaceAll(r.PostFormValue(name), "\r\n", "\n")
}
