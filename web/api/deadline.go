package api

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"pocketcoder/web/openapi"
)

// DeadlineHeader is the time of the server until which a request counts, in milliseconds since 1970. A client that
// gives up after that time knows that a request that is still on its way has no effect.
const DeadlineHeader = "Pocketcoder-Deadline"

// DeadlineParam describes DeadlineHeader.
var DeadlineParam = openapi.Param{Name: DeadlineHeader, Header: true, Integer: true,
	About: "until when the request counts, by the server's clock (the header Date of its answers), in milliseconds since 1970; later it is refused with 412"}

// late refuses a request that came after its deadline.
var late = Problem{Status: http.StatusPreconditionFailed,
	Message: "This came too late: it counted only until the time that it names. Nothing was done."}

// CheckDeadline refuses a request that came after the deadline in its header. It replaces the body by one that ends
// with that refusal if its end comes after the deadline.
func CheckDeadline(r *http.Request) error {
	text := r.Header.Get(DeadlineHeader)
	if text == "" {
		return nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return BadRequest("The header %s must be milliseconds since 1970, not %q.", DeadlineHeader, Truncate(text, 40))
	}
	deadline := time.UnixMilli(ms)
	if time.Now().After(deadline) {
		return late
	}
	r.Body = timelyBody{r.Body, deadline}
	return nil
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
