package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/web/query"
)

// problem is PocketBase's error answer. It is an error of the routes: what else they return is a 500 that says nothing.
type problem struct {
	Status  int            `json:"status"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data"` // a fault for each field at fault
	retry   time.Duration  `json:"-"`    // when trying again makes sense
}

// fault says what is wrong with one field.
type fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (p problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", p.Status, p.Message)
	for field, f := range p.Data {
		fmt.Fprintf(&b, " %s: %v", field, f)
	}
	return b.String()
}

// The answers of PocketBase, in its words where clients show them.
func notFound() problem {
	return problem{Status: http.StatusNotFound, Message: "The requested resource wasn't found."}
}

func forbidden(message string) problem {
	return problem{Status: http.StatusForbidden, Message: message}
}

func unauthorized() problem {
	return problem{Status: http.StatusUnauthorized, Message: "The request requires valid record authorization token."}
}

func badRequest(format string, args ...any) problem {
	return problem{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
}

// badField refuses one field of a body or of the query.
func badField(field, code, format string, args ...any) problem {
	text := fmt.Sprintf(format, args...)
	return problem{Status: http.StatusBadRequest, Message: "Something went wrong while processing your request: " + field + ": " + text,
		Data: map[string]any{field: fault{code, text}}}
}

// problemOf finds the answer to an error.
func problemOf(err error) problem {
	var (
		p       problem
		refused handlers.Refused
		invalid query.Invalid
		backoff account.ErrBackoff
		tooLong *http.MaxBytesError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &refused):
		return problemOfRefusal(refused)
	case errors.As(err, &invalid):
		return badField(invalid.Field, invalid.Code, "%s", invalid.Message)
	case errors.Is(err, query.ErrSuperusers):
		return forbidden("Only superusers can perform this action.")
	case errors.Is(err, query.ErrNotFound):
		return notFound()
	case errors.As(err, &backoff):
		return problem{Status: http.StatusTooManyRequests, Message: "Too many failed logins; try again later.", retry: backoff.RetryAfter}
	case errors.Is(err, account.ErrToken):
		return unauthorized()
	case errors.Is(err, account.ErrCredentials):
		return badRequest("Failed to authenticate.")
	case errors.As(err, &tooLong):
		return problem{Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("The request body is larger than %d bytes.", tooLong.Limit)}
	case errors.Is(err, ErrUnavailable):
		return problem{Status: http.StatusServiceUnavailable, Message: "OpenCode does not answer; try again.", retry: time.Second}
	case errors.Is(err, context.DeadlineExceeded):
		return problem{Status: http.StatusServiceUnavailable, Message: "It took too long; try again."}
	}
	return problem{Status: http.StatusInternalServerError, Message: "Something went wrong while processing your request."}
}

func problemOfRefusal(r handlers.Refused) problem {
	p := problem{Status: http.StatusBadRequest, Message: r.Text}
	if r.Code == handlers.NotFound {
		p.Status = http.StatusNotFound
	}
	code := map[handlers.Code]string{handlers.Invalid: "validation_invalid_value", handlers.Conflict: "validation_conflict"}[r.Code]
	if r.Field != "" && code != "" {
		p.Data = map[string]any{r.Field: fault{code, r.Text}}
	}
	return p
}

func writeProblem(w http.ResponseWriter, p problem) {
	if p.Data == nil {
		p.Data = map[string]any{}
	}
	if p.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((p.retry+time.Second-1)/time.Second)))
	}
	b, _ := json.Marshal(p) // of strings and a number
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(b) // a client that went away misses it
}
