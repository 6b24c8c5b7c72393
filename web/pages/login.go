package pages

import (
	"errors"
	"net/http"

	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

func (p Pages) showLogin(w http.ResponseWriter, r *http.Request) error {
	next := site.LocalPath(r.URL.Query().Get("next"))
	if p.Caller(r).Identity != nil {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return nil
	}
	return site.Render(w, r, http.StatusOK, loginPage(next, "", ""))
}

// logIn opens a session. A failed login shows the form again, with the reason.
func (p Pages) logIn(w http.ResponseWriter, r *http.Request) error {
	caller := p.API.Guest(r)
	if err := p.API.Limit(caller.Client.Address); err != nil {
		return err
	}
	if err := site.ParseForm(r); err != nil {
		return err
	}
	email, next := r.PostFormValue("email"), site.LocalPath(r.PostFormValue("next"))
	token, err := p.API.Accounts.Login(r.Context(), account.Login{
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
	return p.Enter(w, r, token, next)
}

func (p Pages) logOut(w http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	return p.endSession(w, r, caller, caller.Session)
}

// endSession ends a session of the account, or all of them if session is empty.
func (p Pages) endSession(w http.ResponseWriter, r *http.Request, caller api.Caller,
	session string) (next string, err error) {
	command := handlers.Command{Actor: caller.Actor()}
	if err := p.API.Accounts.Revoke(r.Context(), account.RevokeSession{Command: command, Account: caller.Account,
		Session: session}); err != nil {
		return "", err
	}
	if session == "" || session == caller.Session {
		p.Leave(w, r)
		return "/login", nil
	}
	return "/account", nil
}
