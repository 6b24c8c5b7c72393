package ports

import (
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"
)

const (
	ticketMark    = "~"
	maxTickets    = 1000 // in all
	maxOwnTickets = 32   // of one account; a further one replaces the oldest
)

// errTooManyTickets is returned when no more tickets can be valid at once.
var errTooManyTickets = errors.New("too many tickets are valid")

// ticket is what a ticket lets its bearer reach. A ticket is a part of a path that lets a browser reach one port of one
// chat in the name of an account. It is in the path, because browsers send no header with a link, and no cookie from a
// page with an opaque origin. It is valid until it expires or the login session that requested it ends.
type ticket struct {
	Chat, Port string
	Account    string
	Login      string // token of the account
	Expires    time.Time

	issued time.Time
}

// tickets has the valid tickets. They end with the process. The zero value is ready.
type tickets struct {
	mu sync.Mutex
	by map[string]ticket
}

// Add stores a ticket and returns the part of the path that names it, or errTooManyTickets. The number of tickets is
// limited for each account, which may have many logins.
func (t *tickets) Add(k ticket) (id string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k.issued = time.Now()
	own, oldest := 0, ""
	for id, old := range t.by {
		switch {
		case k.issued.After(old.Expires):
			delete(t.by, id)
		case old.Account == k.Account:
			if own++; oldest == "" || old.issued.Before(t.by[oldest].issued) {
				oldest = id
			}
		}
	}
	if own >= maxOwnTickets {
		delete(t.by, oldest)
	}
	if len(t.by) >= maxTickets {
		return "", errTooManyTickets
	}
	if t.by == nil {
		t.by = map[string]ticket{}
	}
	id = ticketMark + rand.Text()
	t.by[id] = k
	return id, nil
}

// Login returns the login of the ticket in a path, empty if the ticket is not valid there.
func (t *tickets) Login(path string) string {
	p := parsePath(path)
	t.mu.Lock()
	defer t.mu.Unlock()
	k, ok := t.by[p.Ticket]
	if !ok || k.Chat != p.Chat || k.Port != p.Port || time.Now().After(k.Expires) {
		return ""
	}
	return k.Login
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
