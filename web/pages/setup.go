package pages

import (
	"net/http"
	"net/url"
	"strings"

	"pocketcoder/handlers/account"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

// setupForm holds the fields of the setup page, without the passwords.
type setupForm struct {
	code        string // token of the one-time link
	email, name string
	problem     string
}

// showSetup serves the page of the one-time link. The code is in the link's fragment, which browsers do not send:
// setup.js puts it into the form. Without script, a person copies it.
func (p Pages) showSetup(w http.ResponseWriter, r *http.Request) error {
	return site.Render(w, r, http.StatusOK, setupPage(setupForm{}, p.otherAddress(r)))
}

// setUp creates the first administrator and logs the browser in. A refusal shows the form again, with the reason.
func (p Pages) setUp(w http.ResponseWriter, r *http.Request) error {
	caller := p.API.Guest(r)
	if err := p.API.Limit(caller.Client.Address); err != nil {
		return err
	}
	if err := site.ParseForm(r); err != nil {
		return err
	}
	f := setupForm{code: setupCode(r.PostFormValue("code")), email: r.PostFormValue("email"),
		name: r.PostFormValue("name")}
	password := r.PostFormValue("password")
	if password != r.PostFormValue("password_again") {
		f.problem = "The two passwords differ."
		return site.Render(w, r, http.StatusUnprocessableEntity, setupPage(f, p.otherAddress(r)))
	}
	token, err := p.API.Accounts.CompleteSetup(r.Context(), account.CompleteSetup{
		Token: f.code, Email: f.email, Name: f.name, Password: password, Client: caller.Client,
	})
	if err == nil {
		return p.Enter(w, r, token, "/")
	}
	problem := api.ProblemOf(err)
	if problem.Status == http.StatusInternalServerError {
		return err
	}
	f.problem = site.ProblemText(problem)
	if problem.Status == http.StatusNotFound { // of the token alone
		f.code, f.problem = "", "The code is wrong, was used already or has expired. Restart the server to get a "+
			"new link, or log in if the account exists."
	}
	return site.Render(w, r, problem.Status, setupPage(f, p.otherAddress(r)))
}

// otherAddress returns the URL that the operator set, if this browser uses another one: a login is valid only at the
// address where it was made.
func (p Pages) otherAddress(r *http.Request) string {
	if u, err := url.Parse(p.API.URL); err != nil || u.Host == r.Host {
		return ""
	}
	return p.API.URL
}

// setupCode returns the code from what a person pasted: the code alone or the whole link.
func setupCode(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '#')+1:]
}
