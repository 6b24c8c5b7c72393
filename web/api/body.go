package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"pocketcoder/events/log"
)

// Limits of a request's body. A message of 1 MiB fits into maxBody even in the worst JSON escaping, so that its own
// limit refuses a larger one. A guest only sends a login or realtime topics, and can open many connections without an
// account.
const (
	maxBody          = 8 << 20 // bytes
	bodyTimeout      = 30 * time.Second
	maxGuestBody     = 64 << 10
	guestBodyTimeout = 10 * time.Second
)

// BoundBody limits the size of a request body and the time that it may take to arrive. The answer is not limited: it
// may be a stream.
func BoundBody(w http.ResponseWriter, r *http.Request, caller Caller) {
	limit, timeout := int64(maxBody), bodyTimeout
	if caller.Identity == nil {
		limit, timeout = maxGuestBody, guestBodyTimeout
	}
	r.Body = http.MaxBytesReader(w, limitBodyTime(w, r, timeout), limit)
}

// limitBodyTime returns the request's body with a deadline for reading it. A read timeout of the server would also end
// long answers.
func limitBodyTime(w http.ResponseWriter, r *http.Request, timeout time.Duration) io.ReadCloser {
	b := deadlineBody{r.Body, http.NewResponseController(w)}
	if r.ContentLength == 0 {
		b.end()
	} else {
		_ = b.control.SetReadDeadline(time.Now().Add(timeout)) // fails only in tests, without a connection
	}
	return b
}

// deadlineBody has a read deadline until it ends.
type deadlineBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b deadlineBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.end()
	}
	return n, err
}

func (b deadlineBody) end() { _ = b.control.SetReadDeadline(time.Time{}) }

// DecodeBody decodes a JSON body into v. The error names a field that v does not have.
func DecodeBody(r *http.Request, v any) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		var typ *json.UnmarshalTypeError
		if errors.As(err, &typ) && typ.Field != "" {
			return BadField(typ.Field, "validation_invalid_type", "want a %s, got a %s", typ.Type, typ.Value)
		}
		if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return BadField(strings.Trim(name, `"`), "validation_unknown_field", "there is no such field")
		}
		return BadRequest("The body is not readable: %v.", err)
	}
	return nil
}

// ReadObject reads a body that is one JSON object. It leaves the values as they were written.
func ReadObject(r *http.Request) (map[string]json.RawMessage, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	return parseObject(body)
}

func parseObject(body []byte) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return nil, BadRequest("The body must be a JSON object.")
	}
	return fields, nil
}

// readBody returns the bytes of a JSON body. An empty body is an empty object.
func readBody(r *http.Request) ([]byte, error) {
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && media == "multipart/form-data":
		return readForm(multipart.NewReader(r.Body, params["boundary"]))
	case err == nil && media != "application/json":
		return nil, Problem{Status: http.StatusUnsupportedMediaType,
			Message: fmt.Sprintf("The body must be application/json, not %s.", media)}
	}
	body, err := readAll(r.Body)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return []byte("{}"), nil
	}
	if !json.Valid(body) {
		return nil, BadRequest("The body is not JSON.")
	}
	return body, nil
}

func readAll(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(r)
	if err != nil {
		if errors.As(err, new(*http.MaxBytesError)) || errors.As(err, new(Problem)) {
			return nil, err
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, Problem{Status: http.StatusRequestTimeout, Message: "The request body did not arrive in time."}
		}
		return nil, BadRequest("The body could not be read.")
	}
	return body, nil
}

// jsonPayload is the part of a form that holds the body as JSON, as the SDKs send it for collections that could have
// files.
const jsonPayload = "@jsonPayload"

// readForm returns a multipart body as JSON: the object in @jsonPayload, and the other parts as texts. Files are
// refused.
func readForm(form *multipart.Reader) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return MustJSON(fields), nil
		}
		if err != nil {
			return nil, BadRequest("The form could not be read.")
		}
		if part.FileName() != "" {
			return nil, BadField(part.FormName(), "validation_invalid_type", "files are not accepted")
		}
		text, err := readAll(part)
		if err != nil {
			return nil, err
		}
		if part.FormName() != jsonPayload {
			fields[part.FormName()] = MustJSON(string(text))
			continue
		}
		object, err := parseObject(text)
		if err != nil {
			return nil, err
		}
		maps.Copy(fields, object)
	}
}

// MustJSON encodes a text, a number, a bool or a value that was decoded from JSON.
func MustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // impossible for these types
	}
	return b
}

// DeadlineHeader is the deadline of a request, in milliseconds since 1970 by the server's clock. A request that is
// still on its way at that time has no effect.
const DeadlineHeader = "Pocketcoder-Deadline"

// DeadlineParam describes DeadlineHeader.
var DeadlineParam = Param{Name: DeadlineHeader, Header: true, Integer: true,
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
