package api

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/web/query"
)

// Caller is the account that sends a request, or a guest.
type Caller struct {
	*account.Identity // nil for a guest
	Client            events.Client
	IsOperator        bool // the operator of the machine, who has no account
	invalidToken      bool // the request has an invalid token
	idempotencyKey    string
}

// caller identifies the caller by the token, with or without "Bearer " before it. A caller with an invalid token is a
// guest: PocketBase's clients send a stored token even when they log in.
func (s *Server) caller(r *http.Request) Caller {
	if isOperator(r) {
		return s.operator(r)
	}
	if token, sent := s.TokenOf(r); sent {
		return s.CallerWith(r, token)
	}
	return s.Guest(r)
}

// Guest returns the caller of a request without a token.
func (s *Server) Guest(r *http.Request) Caller {
	return Caller{Client: events.Client{Address: s.address(r), Device: Truncate(r.UserAgent(), maxDevice)}}
}

// CallerWith identifies the caller by a token. A caller with an invalid token is a guest.
func (s *Server) CallerWith(r *http.Request, token string) Caller {
	caller := s.Guest(r)
	identity, err := s.Accounts.Await(r.Context(), strings.TrimSpace(token))
	if caller.invalidToken = err != nil; err == nil {
		caller.Identity = &identity
	}
	return caller
}

// TokenOf returns the token of a request, or the login that a ticket in the path stands for. A header beside a ticket
// is ignored: it comes from a page that we do not trust.
func (s *Server) TokenOf(r *http.Request) (token string, sent bool) {
	if s.Ticket != nil {
		if token, found := s.Ticket(r); found {
			return token, true
		}
	}
	header, sent := r.Header["Authorization"]
	if !sent {
		return "", false
	}
	token = strings.TrimSpace(header[0])
	if scheme, rest, ok := strings.Cut(token, " "); ok && strings.EqualFold(scheme, "bearer") {
		token = rest
	}
	return token, true
}

// maxDevice is the largest part of a User-Agent that is stored, in bytes.
const maxDevice = 200

// Truncate returns at most n bytes of s, as valid UTF-8.
func Truncate(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}

// address returns the address of the client: the last entry of X-Forwarded-For if a proxy is in front.
func (s *Server) address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	if forwarded := r.Header.Values("X-Forwarded-For"); s.Proxied && len(forwarded) > 0 {
		hops := strings.Split(forwarded[len(forwarded)-1], ",")
		if ip := net.ParseIP(strings.TrimSpace(hops[len(hops)-1])); ip != nil {
			return ip.String()
		}
	}
	return host
}

// IdempotencyParam is the header with which a client repeats a request whose answer it has lost.
var IdempotencyParam = Param{Name: "Idempotency-Key", Header: true,
	About: "an id that the client has made for the request; a repetition with the same id has no second effect"}

// Command returns what the commands of a request have in common. A request of several commands must not use it: they
// would have the same id.
func (c Caller) Command() handlers.Command {
	command := handlers.Command{Actor: c.Actor()}
	if c.idempotencyKey != "" {
		sum := sha256.Sum256([]byte(c.Key() + "\n" + c.idempotencyKey)) // each account has its own keys
		command.ID = hex.EncodeToString(sum[:16])
	}
	return command
}

// Actor is the caller in the metadata of events.
func (c Caller) Actor() string {
	if c.Identity == nil {
		return events.ActorNobody
	}
	return events.UserActor(c.Account)
}

func (c Caller) Is(role string) bool { return c.Identity != nil && c.Role == role }

// Superuser reports whether the caller logged in as an administrator at _superusers. No rule applies to such a
// caller.
func (c Caller) Superuser() bool { return c.Is(account.Admin) && c.Collection == account.Superusers }

// Request returns the data that rules can read besides the record.
func (c Caller) Request() query.Request {
	q := query.Request{Superuser: c.Superuser()}
	if c.Identity != nil {
		q.Auth = &query.Auth{ID: c.Account, Email: c.Email, Name: c.Name, Role: c.Role, Collection: c.Collection}
	}
	return q
}

// AccountKey identifies an account across all collections of accounts.
func AccountKey(identity account.Identity) string {
	return identity.Collection + "/" + identity.Account
}

// Key is the AccountKey of the caller, or names the network of a guest.
func (c Caller) Key() string {
	if c.Identity == nil {
		return "guest/" + c.Client.Network()
	}
	return AccountKey(*c.Identity)
}
