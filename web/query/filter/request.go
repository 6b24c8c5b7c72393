package filter

import (
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
