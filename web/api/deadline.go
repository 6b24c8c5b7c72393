package api

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"pocketcoder/events/log"
	"pocketcoder/web/openapi"
)

// DeadlineHeader is the deadline of a request, in milliseconds since 1970 by the server's clock. A request that is
// still on its way at that time has no effect.
const DeadlineHeader = "Pocketcoder-Deadline"

// DeadlineParam describes DeadlineHeader.
var DeadlineParam = openapi.Param{Name: DeadlineHeader, Header: true, Integer: true,
	About: "deadline of the request, in milliseconds since 1970 by the server's clock (header Date of its answers); a request that arrives later, or waits in the server until then, is refused with 412"}

// late refuses a request whose deadline has passed.
var late = Problem{Status: http.StatusPreconditionFailed,
	Message: "The deadline of the request has passed. Nothing was done."}

// WithDeadline refuses a request that came after the deadline in its header. It returns the request with the deadline
// in its context, so that the log refuses what the request appends after it. It also wraps the body: if the end of the
// body arrives after the deadline, reading it returns the same refusal.
func WithDeadline(r *http.Request) (*http.Request, error) {
	text := r.Header.Get(DeadlineHeader)
	if text == "" {
		return r, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return r, BadRequest("The header %s must be milliseconds since 1970, not %q.", DeadlineHeader, Truncate(text, 40))
	}
	deadline := time.UnixMilli(ms)
	if time.Now().After(deadline) {
		return r, late
	}
	r = r.WithContext(log.BeginBefore(r.Context(), deadline))
	r.Body = timelyBody{r.Body, deadline}
	return r, nil
}

// timelyBody is a body that must end before a deadline.
type timelyBody struct {
	io.ReadCloser
	deadline time.Time
}

func (b timelyBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && time.Now().After(b.deadline) {
		err = late
	}
	return n, err
}
