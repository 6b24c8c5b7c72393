// Package login serves the pages of an account: the setup link, the login, and the logins of the account.
//
// Promises: a password and the token of a login go to the server alone, and no page shows them. A refused form comes
// back with the reason and without its passwords.
//
// It must not know what makes a password or a token valid.
package login

import (
	"errors"
	"net/http"

	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

// Login serves the pages of an account.
type Login struct{ *site.Site }

// Handle adds the pages to a mux.
func (l Login) Handle(mux *http.ServeMux) {
	mux.Handle("GET /login", l.Open(l.showLogin))
	mux.Handle("POST /login", l.Open(l.logIn))
	mux.Handle("GET /setup", l.Open(l.showSetup))
	mux.Handle("POST /setup", l.Open(l.setUp))
	mux.Handle("POST /logout", l.Command(l.logOut))
	mux.Handle("GET /account", l.Page(l.showAccount))
	mux.Handle("POST /account/logins/end", l.Command(l.endLogin))
	mux.Handle("POST /account/logins/{session}/end", l.Command(l.endLogin))
	mux.Handle("POST /account/browsers", l.Command(l.addBrowser))
	mux.Handle("POST /account/browsers/{device}/test", l.Command(l.testBrowser))
	mux.Handle("POST /account/browsers/{device}/remove", l.Command(l.removeBrowser))
}

func (l Login) showLogin(w http.ResponseWriter, r *http.Request) error {
	next := site.LocalPath(r.URL.Query().Get("next"))
	if l.Caller(r).Identity != nil {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return nil
	}
	return site.Render(w, r, http.StatusOK, loginPage(next, "", ""))
}

// logIn opens a session. A failed login shows the form again, with the reason.
func (l Login) logIn(w http.ResponseWriter, r *http.Request) error {
	caller := l.API.Guest(r)
	if err := l.API.Limit(caller.Client.Address); err != nil {
		return err
	}
	if err := site.ParseForm(r); err != nil {
		return err
	}
	email, next := r.PostFormValue("email"), site.LocalPath(r.PostFormValue("next"))
	token, err := l.API.Accounts.Login(r.Context(), account.Login{
		Identity: email, Password: r.PostFormValue("password"), Collection: account.Users, Client: caller.Client,
	})
	var backoff account.ErrBackoff
	switch {
	case errors.Is(err, account.ErrCredentials):
		return site.Render(w, r, http.StatusUnprocessableEntity,
			loginPage(next, email, "The email or the password is wrong."))
	case errors.As(err, &backoff):
		return site.Render(w, r, http.StatusTooManyRequests,
			loginPage(next, email, "Too many failed logins. Try again later."))
	case err != nil:
		return err
	}
	return l.Enter(w, r, token, next)
}

func (l Login) logOut(w http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	return l.endSession(w, r, caller, caller.Session)
}

// endSession ends a session of the account, or all of them if session is empty.
func (l Login) endSession(w http.ResponseWriter, r *http.Request, caller api.Caller,
	session string) (next string, err error) {
	command := handlers.Command{Actor: caller.Actor()}
	if err := l.API.Accounts.Revoke(r.Context(), account.RevokeSession{Command: command, Account: caller.Account,
		Session: session}); err != nil {
		return "", err
	}
	if session == "" || session == caller.Session {
		l.Leave(w, r)
		return "/login", nil
	}
	return "/account", nil
}
