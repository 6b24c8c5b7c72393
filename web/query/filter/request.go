package filter

import (
	"time"
)

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
