package query

import (
	"strconv"
	"time"

	"github.com/pocketbase/dbx"

	"pocketcoder/handlers/account"
)

// statement is an SQL statement under construction, with its bound values and its aliases.
type statement struct {
	Cat        Catalogue
	Req        Request
	Now        time.Time
	Params     dbx.Params
	aliases    int
	Tombstones bool // relations also lead to removed records
}

// newStatement returns an empty statement over the collections of a catalogue.
func newStatement(cat Catalogue, req Request) *statement {
	s := &statement{Cat: cat, Req: req, Now: req.Now.UTC(), Params: dbx.Params{}}
	if req.Now.IsZero() {
		s.Now = time.Now().UTC()
	}
	return s
}

// Bind returns the placeholder of a value.
func (s *statement) Bind(v any) string {
	if b, ok := v.(bool); ok {
		v = 0
		if b {
			v = 1
		}
	}
	name := "p" + strconv.Itoa(len(s.Params))
	s.Params[name] = v
	return "{:" + name + "}"
}

// alias returns a new alias for a table. Aliases start with j_, which no table of a catalogue does.
func (s *statement) alias() string {
	s.aliases++
	return "j_" + strconv.Itoa(s.aliases)
}

// Auth is the account that makes a request.
type Auth struct {
	ID, Email, Name, Role string
	Collection            string // name of the account's auth collection
}

// Request is what rules can read besides the record.
type Request struct {
	Auth      *Auth     // nil if the caller is not logged in
	Superuser bool      // rules do not apply to the caller
	Now       time.Time // for the date macros; zero is the current time
}

// shows reports whether the caller may see a field of the records that the caller may view. PocketCoder itself, which
// has no account, sees each.
func (r Request) shows(f Field) bool {
	if r.Auth == nil {
		return !f.Admins || r.Superuser
	}
	return !f.Admins || r.Auth.Role == account.Admin
}

// Limits of a filter. Those marked with PocketBase have PocketBase's values.
const (
	maxText        = 3500 // bytes of a filter (as in PocketBase), of expand and of fields
	maxExpressions = 200  // comparisons in a filter, PocketBase
	maxNesting     = 32   // parentheses within parentheses
	maxPath        = 6    // relations in a path, PocketBase
	maxSort        = 8    // fields, PocketBase
	maxSortName    = 255  // bytes, PocketBase
	// bytes of a text searched with ~: in the worst case SQLite compares all of it at every position of the other text
	maxPattern = 256
	maxJoins   = 20 // relations followed in a filter or a sort; SQLite joins at most 64 tables
	maxMany    = 4  // of these, how many may lead to several records; their numbers multiply
)

// tooLong refuses a parameter that has more than maxText bytes.
func tooLong(parameter, text string) Invalid {
	return newInvalid(parameter, "too_long", "it is %d bytes long, at most %d", len(text), maxText)
}
