package site

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"pocketcoder/handlers/account"
	"pocketcoder/web/api"
)

// The cookie with the token of a login. Over TLS it has the prefix that keeps other hosts and plain HTTP from setting
// it.
const (
	cookieName       = "pocketcoder"
	secureCookieName = "__Host-pocketcoder"
)

// Secure reports whether the browser reached us over TLS, as it does behind a proxy: not every proxy says so in a
// header.
func (s *Site) Secure(r *http.Request) bool { return r.TLS != nil || s.API.Proxied }

// Leave ends the login in the browser.
func (s *Site) Leave(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, s.newCookie(r, "", time.Unix(1, 0)))
}

// newCookie returns the cookie for a token. A cookie that has expired already ends the login in the browser.
func (s *Site) newCookie(r *http.Request, token string, expires time.Time) *http.Cookie {
	c := &http.Cookie{
		Name: cookieName, Value: token, Path: "/", Expires: expires, HttpOnly: true,
		SameSite: http.SameSiteLaxMode, // a link in a notification leads here from elsewhere
	}
	if s.Secure(r) {
		c.Name, c.Secure = secureCookieName, true
	}
	return c
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
	name := cookieName
	if s.Secure(r) {
		name = secureCookieName
	}
	c, err := r.Cookie(name)
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
