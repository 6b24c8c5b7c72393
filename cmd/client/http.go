package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log/sleep"
	"pocketcoder/handlers"
	"pocketcoder/web/api"
)

// localURL stands for the system on this machine in the addresses of requests over its socket.
const localURL = "http://localhost"

// overSocket returns a transport whose connections go to a Unix socket.
func overSocket(path string) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialSocket(ctx, path)
	}}
}

// maxSocket is the length in bytes up to which every system takes the path of a Unix socket.
const maxSocket = 103

// dialSocket connects to a Unix socket, on Linux also at a path that is longer than such paths may be.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	if len(path) > maxSocket && runtime.GOOS == "linux" {
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		path = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	}
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}

// open sends a request and returns its answer. It returns a Refused for an answer that is an error. The caller must
// close the body.
func (s *System) open(ctx context.Context, method, path string, body any) (*http.Response, error) {
	fail := func(err error) (*http.Response, error) { return nil, fmt.Errorf("%s %s: %w", method, path, err) }
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return fail(err)
		}
		content = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, content)
	if err != nil {
		return fail(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if method == http.MethodGet {
		r.Header.Set(api.ReadHeader, api.ReadLatest)
	}
	s.setHeaders(r.Header)
	if key, ok := ctx.Value(requestKey{}).(string); ok {
		r.Header.Set(api.IdempotencyParam.Name, key)
	}
	answer, err := s.http.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // its text has the address, which says nothing about a socket
		}
		var dial *net.OpError
		absent := errors.As(err, &dial) && dial.Op == "dial"
		return nil, unreachable{fmt.Errorf("reach the system at %s: %w", s.name(), err), absent}
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		defer answer.Body.Close()
		err := refusalOf(answer)
		if answer.StatusCode == http.StatusUnauthorized && s.Server != "" {
			err = fmt.Errorf("your login at %s has ended; log in again with: pocketcoder login %[1]s", s.Server)
		}
		if answer.StatusCode == http.StatusServiceUnavailable {
			err = unreachable{err, true} // it starts
		}
		return nil, err
	}
	s.reached.Store(true)
	return answer, nil
}

func (s *System) setHeaders(h http.Header) {
	if s.Token != "" {
		h.Set("Authorization", "Bearer "+s.Token)
	}
	h.Set("User-Agent", "pocketcoder")
	if s.Account != "" {
		h.Set(api.AccountHeader, s.Account)
	}
}

// Send sends a request with a JSON body, nil for none, and decodes the JSON answer into out, unless out is nil.
func (s *System) Send(ctx context.Context, method, path string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := s.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if out == nil {
		return nil
	}
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		return unreachable{fmt.Errorf("read the answer to %s %s: %w", method, path, err), false}
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	}
	return nil
}

// unreachable is the error of a request without an answer. The server may have acted, unless it is absent: it does not
// run, or does not serve yet.
type unreachable struct {
	error
	absent bool
}

func (u unreachable) Unwrap() error { return u.error }

// requestKey is the context key of the id of a request.
type requestKey struct{}

// sendOnce is Send for a request that the server carries out once, however often it arrives: it sets a value, it has
// the id of a new record, or its route takes an api.IdempotencyParam. Without an answer, sendOnce sends it again, for
// ReconnectTime. It does not wait for a system that was absent from the beginning.
func (s *System) sendOnce(ctx context.Context, method, path string, body, out any) error {
	ctx = context.WithValue(ctx, requestKey{}, events.NewID())
	for until := time.Now().Add(ReconnectTime); ; {
		err := s.Send(ctx, method, path, body, out)
		var lost unreachable
		again := errors.As(err, &lost) && (!lost.absent || s.reached.Load())
		if !again || time.Now().After(until) {
			return err
		}
		if sleep.For(ctx, reconnectPause) != nil {
			return err
		}
	}
}

// Get is sendOnce for a GET.
func (s *System) Get(ctx context.Context, path string, out any) error {
	return s.sendOnce(ctx, http.MethodGet, path, nil, out)
}

// Read returns the answer of a GET.
func Read[R any](ctx context.Context, s *System, path string) (result R, err error) {
	return result, s.Get(ctx, path, &result)
}

// Download copies the answer of a GET, which may take any time.
func (s *System) Download(ctx context.Context, path string, to io.Writer) error {
	answer, err := s.open(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(to, answer.Body)
	return err
}

// refusalOf returns the error of an answer: a Refused for what the caller can change.
func refusalOf(answer *http.Response) error {
	var p struct {
		Message string
		Data    map[string]api.Fault
	}
	b, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return err
	}
	if json.Unmarshal(b, &p) != nil && p.Message == "" {
		return fmt.Errorf("the server answers with the status %s", answer.Status)
	}
	r := handlers.Refused{Code: handlers.Invalid, Text: p.Message}
	switch answer.StatusCode {
	case http.StatusNotFound:
		r.Code = handlers.NotFound
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		r.Code = handlers.Unavailable
	case http.StatusConflict:
		r.Code = handlers.Conflict
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusInternalServerError, http.StatusBadGateway:
		return errors.New(p.Message)
	}
	if code := answer.Header.Get(api.RefusalHeader); code != "" {
		r.Code = handlers.Code(code)
	}
	for field, fault := range p.Data {
		switch {
		case fault.Message == "":
			continue
		case fault.Message == p.Message || field == "status" || strings.HasPrefix(fault.Message, field+":"):
			r.Field, r.Text = field, fault.Message
		default:
			r.Field, r.Text = field, field+": "+fault.Message
		}
		if fault.Code == api.CodeConflict {
			r.Code = handlers.Conflict
		}
	}
	return refusal{r, b}
}

// refusal is a Refused with the answer that has it.
type refusal struct {
	handlers.Refused
	body []byte
}

func (r refusal) Unwrap() error { return r.Refused }

// Select selects records of a collection in PocketBase's language.
type Select struct {
	Filter, Sort, Expand string
	Fields               string // empty for all
	Limit                int    // 0 for all
}

// maxPage is the number of records that a request returns at most.
const maxPage = 1000

// List returns records of a collection.
func List[R any](ctx context.Context, s *System, collection string, q Select) (all []R, err error) {
	all = []R{}
	for page := 1; ; page++ {
		perPage := maxPage
		if q.Limit > 0 {
			perPage = min(maxPage, q.Limit)
		}
		v := url.Values{"page": {strconv.Itoa(page)}, "perPage": {strconv.Itoa(perPage)}, "skipTotal": {"1"}}
		for name, value := range map[string]string{"filter": q.Filter, "sort": q.Sort, "expand": q.Expand,
			"fields": q.Fields} {
			if value != "" {
				v.Set(name, value)
			}
		}
		var found struct{ Items []R }
		if err := s.Get(ctx, records(collection)+"?"+v.Encode(), &found); err != nil {
			return nil, err
		}
		all = append(all, found.Items...)
		if len(found.Items) < perPage || len(all) == q.Limit {
			return all, nil
		}
	}
}

func records(collection string) string { return "/api/collections/" + collection + "/records" }

// View returns a record of a collection.
func View[R any](ctx context.Context, s *System, collection, id string) (R, error) {
	return Read[R](ctx, s, records(collection)+"/"+url.PathEscape(id))
}

// Created is what an answer says of the record that a request has created or changed.
type Created struct {
	ID string `json:"id"`
}

// Create creates a record and returns its id. Without an id in fields it makes one, so that a repetition of the request
// makes no second record.
func (s *System) Create(ctx context.Context, collection string, fields any) (id string, err error) {
	body := map[string]any{"id": events.NewID()}
	b, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(b, &body)
	}
	if err != nil {
		return "", err
	}
	var made Created
	err = s.sendOnce(ctx, http.MethodPost, records(collection), body, &made)
	return made.ID, err
}

// Update changes fields of a record.
func (s *System) Update(ctx context.Context, collection, id string, fields any) error {
	return missing(s.sendOnce(ctx, http.MethodPatch, records(collection)+"/"+url.PathEscape(id), fields, nil), id)
}

// Delete deletes a record.
func (s *System) Delete(ctx context.Context, collection, id string) error {
	return missing(s.Send(ctx, http.MethodDelete, records(collection)+"/"+url.PathEscape(id), nil, nil), id)
}

// missing names the record that the server has not found.
func missing(err error, id string) error {
	if handlers.CodeOf(err) == handlers.NotFound {
		return handlers.Refuse(handlers.NotFound, "there is no record %s", id)
	}
	return err
}
