package ports

import (
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"time"

	"pocketcoder/web/api"
)

// A ticket lets a browser reach one port of one chat in the name of an account. It stands in the path, because a
// browser sends no header with a link and no cookie with what the page loads: an untrusted page gets an origin of its
// own. A ticket is valid until it expires or the login session that requested it ends.
const (
	ticketMark  = "~"
	ticketLasts = time.Hour
	maxTickets  = 1000 // in all
	maxOwn      = 32   // of one account: the oldest makes room
)

type ticket struct {
	chat, port string
	account    string
	login      string // token of the account
	given      time.Time
	expires    time.Time
}

// tickets has the valid tickets. They end with the process. The zero value is ready.
type tickets struct {
	mu sync.Mutex
	by map[string]ticket
}

// add stores a ticket. The number of tickets is limited for each account, which may have many logins.
func (t *tickets) add(k ticket) (id string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k.given = time.Now()
	own, oldest := 0, ""
	for id, old := range t.by {
		switch {
		case k.given.After(old.expires):
			delete(t.by, id)
		case old.account == k.account:
			if own++; oldest == "" || old.given.Before(t.by[oldest].given) {
				oldest = id
			}
		}
	}
	if own >= maxOwn {
		delete(t.by, oldest)
	}
	if len(t.by) >= maxTickets {
		return "", api.Problem{Status: http.StatusTooManyRequests, Message: "Too many ports are open; try again later.",
			Retry: time.Minute}
	}
	if t.by == nil {
		t.by = map[string]ticket{}
	}
	id = ticketMark + rand.Text()
	t.by[id] = k
	return id, nil
}

// token returns the login of the ticket in the path of a request, empty if the ticket is not valid there.
func (t *tickets) token(r *http.Request) string {
	p := partsOfPort(r.URL.Path)
	t.mu.Lock()
	defer t.mu.Unlock()
	k, ok := t.by[p.ticket]
	if !ok || k.chat != p.chat || k.port != p.port || time.Now().After(k.expires) {
		return ""
	}
	return k.login
}

// portPath is a path below a port: /api/chats/{chat}/ports/{port}/{ticket}/{rest}, with the ticket or without.
type portPath struct {
	chat, port, ticket string
	prefix             string // all but the rest, without a slash behind
	rest               string // with the slash before
}

// partsOfPort parses a path, escaped or not.
func partsOfPort(path string) (p portPath) {
	part := strings.SplitN(path, "/", 8)
	if len(part) < 7 || part[1] != "api" || part[2] != "chats" || part[4] != "ports" {
		return p
	}
	p.chat, p.port = part[3], part[5]
	front := 6
	for _, mark := range []string{ticketMark, "%7E", "%7e"} { // some programs escape it in the links they pass on
		if id, is := strings.CutPrefix(part[6], mark); is {
			p.ticket, front = ticketMark+id, 7
		}
	}
	p.prefix = strings.Join(part[:front], "/")
	p.rest = "/" + strings.Join(part[front:], "/")
	return p
}

// HasTicket reports whether a path has a ticket. Then only the ticket identifies the caller, whatever page makes the
// request.
func HasTicket(path string) bool { return partsOfPort(path).ticket != "" }
