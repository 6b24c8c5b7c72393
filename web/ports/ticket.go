package ports

import (
	"crypto/rand"
	"strings"
	"sync"
	"time"
)

// ticketMark begins the part of a path that is a ticket. The ticket lets a browser reach one port of one chat in the
// name of an account. It is in the path, because browsers send no header with a link, and no cookie from a page with an
// opaque origin.
const ticketMark = "~"

// portAccess is the access that a ticket or a cookie permits.
type portAccess struct {
	chat    string
	port    int
	account string // empty for the operator
	login   string // token of the account; it must still be valid
	expires time.Time
}

// grants are the valid tickets, or cookies, of one kind, by their secret. They end with the process. The zero value is
// ready.
type grants struct {
	mu sync.Mutex
	by map[string]portAccess
}

// maxGrants is the largest number of grants of a kind that one account has, which may have many logins. A new one
// replaces the one that expires first.
const maxGrants = 100

// add stores the access under a new secret.
func (g *grants) add(v portAccess) (secret string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	own, first := 0, ""
	for id, other := range g.by {
		switch {
		case time.Now().After(other.expires):
			delete(g.by, id)
		case other.account == v.account:
			if own++; first == "" || other.expires.Before(g.by[first].expires) {
				first = id
			}
		}
	}
	if own >= maxGrants {
		delete(g.by, first)
	}
	if g.by == nil {
		g.by = map[string]portAccess{}
	}
	secret = rand.Text()
	g.by[secret] = v
	return secret
}

func (g *grants) get(secret string) (v portAccess, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, ok = g.by[secret]
	return v, ok && time.Now().Before(v.expires)
}

// remove deletes a grant, and reports whether there was one.
func (g *grants) remove(secret string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.by[secret]
	delete(g.by, secret)
	return ok
}

// portPath is a path below a port: /api/chats/{chat}/ports/{port}/{ticket}/{rest}, with the ticket or without.
type portPath struct {
	Chat, Port, Ticket string
	Prefix             string // all but the rest, without a slash at the end
	Rest               string // with a slash at the start
}

// parsePath parses a path, escaped or not.
func parsePath(path string) (p portPath) {
	part := strings.SplitN(path, "/", 8)
	if len(part) < 7 || part[1] != "api" || part[2] != "chats" || part[4] != "ports" {
		return p
	}
	p.Chat, p.Port = part[3], part[5]
	front := 6
	for _, escaped := range []string{ticketMark, "%7E", "%7e"} { // some programs escape it in the links they pass on
		if id, is := strings.CutPrefix(part[6], escaped); is {
			p.Ticket, front = ticketMark+id, 7
		}
	}
	p.Prefix = strings.Join(part[:front], "/")
	p.Rest = "/" + strings.Join(part[front:], "/")
	return p
}
