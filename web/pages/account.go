package pages

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/a-h/templ"
	"rsc.io/qr"

	"pocketcoder/handlers/account"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/visible"
)

// accountView holds the logins of an account, and the address of the app.
type accountView struct {
	logins  []account.Session
	address string // under which other devices reach the app; empty for none
	code    *qr.Code

	browsers []device
	pushKey  string // with which browsers subscribe to notifications
}

func (p Pages) showAccount(r *http.Request, caller api.Caller) (_ templ.Component, err error) {
	v := accountView{address: p.address(r), pushKey: p.API.Push.Key}
	if v.address != "" {
		if v.code, err = qr.Encode(v.address+"/", qr.L); err != nil {
			return nil, err
		}
	}
	if v.browsers, err = p.browsers(r, caller); err != nil {
		return nil, err
	}
	if v.logins, err = p.API.Accounts.Sessions(r.Context(), caller.Account); err != nil {
		return nil, err
	}
	slices.SortFunc(v.logins, func(a, b account.Session) int {
		switch caller.Session { // the login of this browser is the first
		case a.ID:
			return -1
		case b.ID:
			return 1
		}
		return b.Opened.Compare(a.Opened)
	})
	return accountPage(caller, v), nil
}

// address returns the URL under which other devices reach the app: the one that the operator set, or else the one that
// this browser uses. It is empty if only this machine reaches the app.
func (p Pages) address(r *http.Request) string {
	switch {
	case p.API.URL != "":
		return p.API.URL
	case isLoopback(r.Host):
		return ""
	case p.Secure(r):
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// isLoopback reports whether only this machine reaches a host.
func isLoopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = strings.Trim(hostPort, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// endLogin ends a session of the account, or all of them if the path has no id.
func (p Pages) endLogin(w http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	return p.endSession(w, r, caller, r.PathValue("session"))
}

// What a User-Agent contains, and the name for it. The string of a browser may also contain the names of browsers
// further down.
var (
	browserNames = [][2]string{{"Edg", "Edge"}, {"OPR/", "Opera"}, {"SamsungBrowser/", "Samsung Internet"},
		{"Firefox/", "Firefox"}, {"FxiOS/", "Firefox"}, {"CriOS/", "Chrome"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"}}
	systemNames = [][2]string{{"Android", "Android"}, {"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Windows", "Windows"},
		{"Macintosh", "Mac"}, {"CrOS", "ChromeOS"}, {"Linux", "Linux"}}
)

// clientName names the client of a login: the browser and the system, or what the client calls itself.
func clientName(userAgent string) string {
	find := func(names [][2]string) string {
		for _, n := range names {
			if strings.Contains(userAgent, n[0]) {
				return n[1]
			}
		}
		return ""
	}
	browser, system := find(browserNames), find(systemNames)
	switch {
	case browser != "" && system != "":
		return fmt.Sprintf("%s on %s", browser, system)
	case strings.TrimSpace(userAgent) == "":
		return "Unknown client"
	}
	return visible.Line(api.Truncate(userAgent, 80))
}

// modules returns the dark modules of a QR code as an SVG path.
func modules(c *qr.Code) string {
	var b strings.Builder
	for y := range c.Size {
		for x := range c.Size {
			if c.Black(x, y) {
				fmt.Fprintf(&b, "M%d %dh1v1h-1z", x, y)
			}
		}
	}
	return b.String()
}

// viewBox is that of a QR code with its quiet zone.
func viewBox(c *qr.Code) string { return fmt.Sprintf("-4 -4 %[1]d %[1]d", c.Size+8) }
