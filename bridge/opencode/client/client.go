// Package client speaks OpenCode's HTTP API and reads its event stream. It must not know chats or the log.
//
//	Client   the endpoints we use. An error reports whether a retry can succeed (Retryable), and whether OpenCode has forgotten the named object (ErrGone)
//	Stream   every event in the order of arrival, in batches of what has arrived; a silent connection ends it
//	History  the durable events that were missed while not connected, in pages
//
// Promises: JSON that will be stored is kept as OpenCode wrote it (the Raw fields, Event.Properties). A durable event
// is returned once, with its sequence number.
//
// Only OpenCode 1.18.33 is known to work. docs/engine.md lists how it behaves, with the tests that show it. Comments
// name the rows of that list.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// requestTimeout bounds an ordinary request. The first prompt of an instance takes OpenCode about 3 s.
const requestTimeout = 30 * time.Second

// ErrGone matches an error by which OpenCode says that it does not know the session, request or question, or not any
// more (behaviour errors-404). OpenCode looks up requests and questions by directory, so a wrong directory gives the
// same error (behaviour lists-by-directory).
var ErrGone = errors.New("no longer known to opencode")

// Client speaks OpenCode's HTTP API. It is safe for concurrent use.
type Client struct {
	base     string
	password string
	http     *http.Client
	models   sync.Map // directory -> Models
}

// New returns a client of the server at base, such as http://127.0.0.1:4096. It sends password with Basic
// authentication and OpenCode's default user name.
func New(base, password string) *Client {
	return &Client{base: strings.TrimRight(base, "/"), password: password, http: &http.Client{Transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		DisableCompression:  true, // loopback
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     time.Minute,
	}}}
}

// HTTP returns the HTTP client that reaches the server, also from outside its sandbox.
func (c *Client) HTTP() *http.Client { return c.http }

func (c *Client) Password() string { return c.password }

func (c *Client) URL() string { return c.base }

// Error is a failed request. Status is the HTTP status. It is 0 if there was no complete response; Err is then the
// cause.
type Error struct {
	Op      string // the operation: "prompt session ses_x"
	Status  int
	Name    string // OpenCode's name for the error: "NotFoundError"
	Message string
	Err     error
}

func (e *Error) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return strings.Join(strings.Fields(fmt.Sprintf("%s: %d %s: %s", e.Op, e.Status, e.Name, e.Message)), " ")
}

func (e *Error) Unwrap() error { return e.Err }

// Is reports whether e means target. It knows only ErrGone.
func (e *Error) Is(target error) bool {
	return target == ErrGone && e.Status == http.StatusNotFound && strings.HasSuffix(e.Name, "NotFoundError")
}

// Retryable reports whether the same request may succeed later: OpenCode was unreachable, too slow, or failed inside. A
// request cancelled by its caller and one that OpenCode refused are final.
func Retryable(err error) bool {
	var e *Error
	if !errors.As(err, &e) || errors.Is(err, context.Canceled) {
		return false
	}
	return e.Status == 0 || e.Status >= 500 || e.Status == http.StatusTooManyRequests
}

// Health returns the version of the server, or an error if the server is not up.
func (c *Client) Health(ctx context.Context) (version string, err error) {
	var out struct {
		Healthy bool   `json:"healthy"`
		Version string `json:"version"`
	}
	if err := c.do(ctx, call{op: "check opencode", path: "/global/health", out: &out}); err != nil {
		return "", err
	}
	if !out.Healthy {
		return "", errors.New("check opencode: it says it is not healthy")
	}
	return out.Version, nil
}

// call is one request: in is sent as JSON unless nil, the answer is decoded into out unless nil.
type call struct {
	op      string
	method  string // GET when empty
	path    string
	query   url.Values
	in, out any
	timeout time.Duration // requestTimeout when 0
}

func (c *Client) do(ctx context.Context, r call) error {
	_, err := c.doWithHeader(ctx, r)
	return err
}

// doWithHeader also returns the header of the answer.
func (c *Client) doWithHeader(ctx context.Context, r call) (http.Header, error) {
	timeout := cmp.Or(r.timeout, requestTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	resp, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if r.out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	} else {
		err = json.NewDecoder(resp.Body).Decode(r.out)
	}
	if err != nil {
		return nil, failed(ctx, r.op, fmt.Errorf("read answer: %w", err))
	}
	return resp.Header, nil
}

// send returns the response to r when its status is a success; the body is the caller's to close.
func (c *Client) send(ctx context.Context, r call) (*http.Response, error) {
	var body io.Reader
	if r.in != nil {
		b, err := json.Marshal(r.in)
		if err != nil {
			return nil, fmt.Errorf("%s: encode request: %w", r.op, err)
		}
		body = bytes.NewReader(b)
	}
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.op, err)
	}
	req.SetBasicAuth("opencode", c.password)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, failed(ctx, r.op, err)
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, refused(r.op, resp)
	}
	resp.Body = &depthReader{ReadCloser: resp.Body}
	return resp, nil
}

// failed is the error of a request without a whole answer; when ctx ended, its cause says more than the transport.
func failed(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // op already says what was tried
	}
	return &Error{Op: op, Err: err}
}

// refused reads OpenCode's error bodies. They have two shapes: {name, data: {message}} and {_tag, message}.
func refused(op string, resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	e := &Error{Op: op, Status: resp.StatusCode}
	var body struct {
		Name    string
		Tag     string `json:"_tag"`
		Message string
		Data    struct{ Message string }
	}
	if json.Unmarshal(b, &body) == nil {
		e.Name, e.Message = body.Name+body.Tag, body.Data.Message+body.Message
	}
	if e.Name == "" {
		e.Name, e.Message = http.StatusText(resp.StatusCode), string(b[:min(len(b), 200)])
	}
	return e
}

func inDirectory(directory string) url.Values { return url.Values{"directory": {directory}} }

// DialThrough makes the client connect with dial, which receives the server's port.
func (c *Client) DialThrough(dial func(ctx context.Context, port int) (net.Conn, error)) {
	c.http.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			return nil, err
		}
		return dial(ctx, n)
	}
}

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

var lastID struct {
	sync.Mutex
	n uint64
}

// NewID returns an id of OpenCode's ascending form, such as msg_1fb48af13001DKM1Q7SXwk6KVf: prefix, 12 hex digits (the
// low 48 bits of t in Unix milliseconds × 0x1000 plus a counter) and 14 random letters and digits. Within this process
// every id sorts after the one before, whatever t says.
func NewID(prefix string, t time.Time) string {
	random := make([]byte, tailLength)
	rand.Read(random) // never fails
	return newID(prefix, t, tail(random))
}

// NewIDOf is NewID with TailOf(name) at the end, by which the id is found again.
func NewIDOf(prefix, name string, t time.Time) string { return newID(prefix, t, TailOf(name)) }

// TailOf returns 14 letters and digits that follow from a name.
func TailOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return tail(sum[:tailLength])
}

const tailLength = 14

func tail(random []byte) string {
	letters := make([]byte, len(random))
	for i, b := range random {
		letters[i] = base62[int(b)%len(base62)]
	}
	return string(letters)
}

func newID(prefix string, t time.Time, tail string) string {
	lastID.Lock()
	n := max(uint64(t.UnixMilli())<<12+1, lastID.n+1)
	lastID.n = n
	lastID.Unlock()
	return fmt.Sprintf("%s_%012x%s", prefix, n&(1<<48-1), tail)
}
