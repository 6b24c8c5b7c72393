package pages

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/texts"
)

// The cookie with the token of a login. Over TLS it has the prefix that keeps other hosts and plain HTTP from setting it.
const (
	cookieName       = "pocketcoder"
	secureCookieName = "__Host-pocketcoder"
)

// secure reports whether the browser reached us over TLS, as it does behind a proxy: not every proxy says so in a header.
func (p *Pages) secure(r *http.Request) bool { return r.TLS != nil || p.API.Proxied }

// newCookie returns the cookie for a token. A cookie that has expired already ends the login in the browser.
func (p *Pages) newCookie(r *http.Request, token string, expires time.Time) *http.Cookie {
	c := &http.Cookie{
		Name: cookieName, Value: token, Path: "/", Expires: expires, HttpOnly: true,
		SameSite: http.SameSiteLaxMode, // a link in a notification leads here from elsewhere
	}
	if p.secure(r) {
		c.Name, c.Secure = secureCookieName, true
	}
	return c
}

// caller identifies the account by the cookie.
func (p *Pages) caller(r *http.Request) api.Caller {
	name := cookieName
	if p.secure(r) {
		name = secureCookieName
	}
	c, err := r.Cookie(name)
	if err != nil {
		return p.API.Guest(r)
	}
	return p.API.CallerWith(r, c.Value)
}

func (p *Pages) showLogin(w http.ResponseWriter, r *http.Request) error {
	next := localPath(r.URL.Query().Get("next"))
	if p.caller(r).Identity != nil {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return nil
	}
	return render(w, r, http.StatusOK, loginPage(next, "", ""))
}

// logIn opens a session. A failed login shows the form again, with the reason.
func (p *Pages) logIn(w http.ResponseWriter, r *http.Request) error {
	who := p.API.Guest(r)
	if err := p.API.Limit(who.Client.Address); err != nil {
		return err
	}
	if err := parseForm(r); err != nil {
		return err
	}
	email, next := r.PostFormValue("email"), localPath(r.PostFormValue("next"))
	token, err := p.API.Accounts.Login(r.Context(), account.Login{
		Identity: email, Password: r.PostFormValue("password"), Collection: account.Users, Client: who.Client,
	})
	var backoff account.ErrBackoff
	switch {
	case errors.Is(err, account.ErrCredentials):
		return render(w, r, http.StatusUnprocessableEntity, loginPage(next, email, texts.WrongCredentials))
	case errors.As(err, &backoff):
		return render(w, r, http.StatusTooManyRequests, loginPage(next, email, texts.TooManyLogins))
	case err != nil:
		return err
	}
	return p.enter(w, r, token, next)
}

// enter leads a browser that has a new session to a page.
func (p *Pages) enter(w http.ResponseWriter, r *http.Request, token account.Token, next string) error {
	if err := p.API.Model.Wait(r.Context(), token.Seq); err != nil {
		return err
	}
	http.SetCookie(w, p.newCookie(r, token.Text, token.Identity.Expires))
	http.Redirect(w, r, next, http.StatusSeeOther)
	return nil
}

func (p *Pages) logOut(w http.ResponseWriter, r *http.Request, who api.Caller) (string, error) {
	return p.endSession(w, r, who, who.Session)
}

// endSession ends a session of the account, or all of them if session is empty.
func (p *Pages) endSession(w http.ResponseWriter, r *http.Request, who api.Caller, session string) (next string, err error) {
	command := handlers.Command{Actor: who.Actor()}
	if err := p.API.Accounts.Revoke(r.Context(), account.RevokeSession{Command: command, Account: who.Account, Session: session}); err != nil {
		return "", err
	}
	if session == "" || session == who.Session {
		http.SetCookie(w, p.newCookie(r, "", time.Unix(1, 0)))
		return "/login", nil
	}
	return "/account", nil
}

// localPath returns the path and query of a page of ours, "/" for any other address.
func localPath(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") || strings.Contains(address, `\`) {
		return "/"
	}
	return u.RequestURI()
}
