package site

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"pocketcoder/handlers/account"
	"pocketcoder/web/api"
)

// The names of the cookie with the token of a login begin so, and end with the name of the installation: browsers keep
// one set of cookies for all ports of a host. Over TLS it has the prefix that keeps other hosts and plain HTTP from
// setting it. Before the installation was in the name, the name was the beginning alone. Such a cookie still counts.
const (
	cookieName       = "pocketcoder"
	secureCookieName = "__Host-pocketcoder"
)

// cookieNames returns the name of the cookie of a login, and its former name.
func (s *Site) cookieNames(r *http.Request) (name, former string) {
	former = cookieName
	if s.Secure(r) {
		former = secureCookieName
	}
	return former + "-" + s.API.Accounts.Instance(), former
}

// Secure reports whether the browser reached us over TLS, as it does behind a proxy: not every proxy says so in a
// header.
func (s *Site) Secure(r *http.Request) bool { return r.TLS != nil || s.API.Proxied }

// Leave ends the login in the browser.
func (s *Site) Leave(w http.ResponseWriter, r *http.Request) {
	c := s.newCookie(r, "", time.Unix(1, 0))
	if name, former := s.cookieNames(r); !sends(r, name) { // the login of this request is in the former cookie
		c.Name = former
	}
	http.SetCookie(w, c)
}

func sends(r *http.Request, name string) bool {
	_, err := r.Cookie(name)
	return err == nil
}

// newCookie returns the cookie for a token. A cookie that has expired already ends the login in the browser.
func (s *Site) newCookie(r *http.Request, token string, expires time.Time) *http.Cookie {
	name, _ := s.cookieNames(r)
	return &http.Cookie{
		Name: name, Value: token, Path: "/", Expires: expires, HttpOnly: true, Secure: s.Secure(r),
		SameSite: http.SameSiteLaxMode, // a link in a notification leads here from elsewhere
	}
}

// Caller identifies the account by the cookie.
func (s *Site) Caller(r *http.Request) api.Caller {
	token, sent := s.Token(r)
	if !sent {
		return s.API.Guest(r)
	}
	return s.API.CallerWith(r, token)
}

// Token returns the token of the login in the cookie.
func (s *Site) Token(r *http.Request) (token string, sent bool) {
	name, former := s.cookieNames(r)
	c, err := r.Cookie(name)
	if err != nil {
		c, err = r.Cookie(former)
	}
	if err != nil {
		return "", false
	}
	return c.Value, true
}

// Enter leads a browser that has a new session to a page.
func (s *Site) Enter(w http.ResponseWriter, r *http.Request, token account.Token, next string) error {
	if err := s.API.Model.Wait(r.Context(), token.Seq); err != nil {
		return err
	}
	http.SetCookie(w, s.newCookie(r, token.Text, token.Identity.Expires))
	http.Redirect(w, r, next, http.StatusSeeOther)
	return nil
}

// LocalPath returns the path and query of a page of ours, "/" for any other address.
func LocalPath(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(u.Path, "/") ||
		strings.HasPrefix(u.Path, "//") || strings.Contains(address, `\`) {
		return "/"
	}
	return u.RequestURI()
}
