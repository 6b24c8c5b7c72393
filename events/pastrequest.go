package events

import "time"

// PastRequest is a permission request of a chat with its current outcome.
type PastRequest struct {
	Chat    string
	Request PermissionRequest
	At      time.Time
	Cwd     string // where its command was to run; empty if that is not known
	Outcome RequestOutcome
}

// RequestOutcome is the current outcome of a permission request.
type RequestOutcome string

// The outcomes of a request.
const (
	RequestWaiting    RequestOutcome = "waiting"
	RequestAuthorized RequestOutcome = Authorized // by a person
	RequestDenied     RequestOutcome = Denied
	RequestAllowed    RequestOutcome = "authorized by a rule"
	RequestRefused    RequestOutcome = "denied by a rule"
	RequestExpired    RequestOutcome = Expired
	RequestElsewhere  RequestOutcome = "answered in OpenCode"
)
