package query

import (
	"errors"
	"fmt"
	"time"
)

// Auth is who asks.
type Auth struct {
	ID, Email, Name, Role string
	Collection            string // name of the auth collection they are a record of
}

// Request is what rules may look at besides the record.
type Request struct {
	Auth      *Auth     // nil for someone not signed in
	Superuser bool      // no rule applies to them
	Now       time.Time // what the date macros say; zero is the time it is
}

// Query says which records are wanted and how. The texts are PocketBase's query parameters of the same names.
type Query struct {
	Filter, Sort, Expand, Fields string
	Page, PerPage                int // from 1, and 30 unless given, at most 1,000
	SkipTotal                    bool
	Large                        bool // a list may have any size
}

// Invalid says what is wrong with what a client sent.
type Invalid struct {
	Field   string // the parameter at fault: filter, sort, expand, fields
	Code    string // for programs
	Message string // for people
}

func (i Invalid) Error() string { return i.Field + ": " + i.Message }

func invalid(field, code, format string, args ...any) Invalid {
	return Invalid{Field: field, Code: code, Message: fmt.Sprintf(format, args...)}
}

var (
	// ErrNotFound is the answer for a record that is not there or not to be seen.
	ErrNotFound = errors.New("there is no such record")
	// ErrSuperusers is the answer to anyone else where the rule is nil.
	ErrSuperusers = errors.New("only superusers can perform this action")
)
