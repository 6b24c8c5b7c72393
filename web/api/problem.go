package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
	"pocketcoder/projections"
	"pocketcoder/web/query"
)

// Problem is PocketBase's error answer. Routes return it as an error. Any other error becomes a 500 without details.
type Problem struct {
	Status  int            `json:"status"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data"` // a Fault for each invalid field
	Retry   time.Duration  `json:"-"`    // after which the client may try again; 0 for none
	Refused handlers.Code  `json:"-"`    // of the command; empty if no command was refused
}

// RefusalHeader is the header with the code of the refusal: invalid, not_found, conflict or unavailable.
const RefusalHeader = "PocketCoder-Refusal"

// CodeConflict is the code of a fault for a value that came too late.
const CodeConflict = "validation_conflict"

// Fault is what is wrong with one field.
type Fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (p Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", p.Status, p.Message)
	for field, f := range p.Data {
		fmt.Fprintf(&b, " %s: %v", field, f)
	}
	return b.String()
}

// NotFound is PocketBase's answer for a record, file or route that does not exist or that the caller may not see.
func NotFound() Problem {
	return Problem{Status: http.StatusNotFound, Message: "The requested resource wasn't found."}
}

// Forbidden refuses what the caller may not do.
func Forbidden(message string) Problem {
	return Problem{Status: http.StatusForbidden, Message: message}
}

// Unauthorized refuses a request without a valid token.
func Unauthorized() Problem {
	return Problem{Status: http.StatusUnauthorized, Message: "The request requires valid record authorization token."}
}

// BadRequest refuses an invalid request.
func BadRequest(format string, args ...any) Problem {
	return Problem{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
}

// BadField refuses one field of a body or of the query.
func BadField(field, code, format string, args ...any) Problem {
	text := fmt.Sprintf(format, args...)
	return Problem{Status: http.StatusBadRequest, Message: "Something went wrong while processing your request: " +
		field + ": " + text,
		Data: map[string]any{field: Fault{code, text}}}
}

func ProblemOf(err error) Problem {
	var (
		p       Problem
		refused handlers.Refused
		invalid query.Invalid
		backoff account.ErrBackoff
		tooLong *http.MaxBytesError
		closed  log.Unavailable
		loading projections.Loading
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &refused):
		return problemOfRefusal(refused)
	case errors.As(err, &invalid):
		p := BadField(invalid.Field, invalid.Code, "%s", invalid.Message)
		if invalid.Code == record.CodeTooLarge {
			p.Status = http.StatusRequestEntityTooLarge
		}
		return p
	case errors.Is(err, query.ErrSuperusers):
		return Forbidden("Only superusers can perform this action.")
	case errors.Is(err, query.ErrNotFound), errors.Is(err, projections.ErrNoChat):
		return NotFound()
	case errors.As(err, &backoff):
		return Problem{Status: http.StatusTooManyRequests, Message: "Too many failed logins; try again later.",
			Retry: backoff.RetryAfter}
	case errors.Is(err, account.ErrToken):
		return Unauthorized()
	case errors.Is(err, account.ErrCredentials):
		return BadRequest("Failed to authenticate.")
	case errors.Is(err, log.ErrLate):
		return late
	case errors.As(err, &tooLong):
		return Problem{Status: http.StatusRequestEntityTooLarge,
			Message: fmt.Sprintf("The request body is larger than %d bytes.", tooLong.Limit)}
	case errors.As(err, &closed):
		return Problem{Status: http.StatusServiceUnavailable, Message: closed.Error(), Retry: 10 * time.Second}
	case errors.As(err, &loading):
		return Problem{Status: http.StatusServiceUnavailable, Message: loading.Error(), Retry: 2 * time.Second}
	case log.IsUnavailable(err): // a read that failed
		return Problem{Status: http.StatusServiceUnavailable,
			Message: "It took too long, or the log does not answer; try again.", Retry: 2 * time.Second}
	}
	return Problem{Status: http.StatusInternalServerError, Message: "Something went wrong while processing your request."}
}

func problemOfRefusal(r handlers.Refused) Problem {
	p := Problem{Status: http.StatusBadRequest, Message: r.Text, Refused: r.Code}
	switch r.Code {
	case handlers.NotFound:
		p.Status = http.StatusNotFound
	case handlers.Unavailable:
		p.Status, p.Retry = http.StatusServiceUnavailable, time.Second
	}
	code := map[handlers.Code]string{
		handlers.Invalid: "validation_invalid_value", handlers.Conflict: CodeConflict,
	}[r.Code]
	if r.Field != "" && code != "" {
		p.Data = map[string]any{r.Field: Fault{code, r.Text}}
	}
	return p
}

// SetRetry sets the Retry-After header if the problem has a retry time.
func (p Problem) SetRetry(h http.Header) {
	if p.Retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.Retry+time.Second-1)/time.Second)))
	}
}

func WriteProblem(w http.ResponseWriter, p Problem) {
	if p.Data == nil {
		p.Data = map[string]any{}
	}
	p.SetRetry(w.Header())
	if p.Refused != "" {
		w.Header().Set(RefusalHeader, string(p.Refused))
	}
	b, _ := json.Marshal(p) // of strings and a number
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(b) // the client may have disconnected
}
