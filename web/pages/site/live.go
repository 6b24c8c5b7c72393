package site

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"pocketcoder/events/log/sleep"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
	"pocketcoder/web/stream"
)

// A live page shows the read models as they are at a sequence. Its stream has these events:
//
//	(unnamed)  elements that a page of the last id lacks, as a JSON text; the id is the sequence of the page with them.
//	           An element replaces the one with its id. One with data-removed removes it.
//	text       {part, text}: text that was appended to a part that is being written; without an id
//	ping       nothing, so that the page knows that it is connected
//	reload     the page must be loaded again: the login or the chat is gone, or the log is another one
//
// Elements are states, not changes. So a page may get one twice, and may miss all but the last one.

const (
	pingEvery = 5 * time.Second       // app.js waits 3 s longer
	coalesce  = 50 * time.Millisecond // the shortest time between two renderings of a page

	defaultLivePages = 200 // of an account
)

// Updates renders what a page of a sequence lacks, and returns the sequence of the page with it. It returns no bytes
// if the page lacks nothing.
type Updates func(ctx context.Context, after uint64) (elements []byte, seq uint64, err error)

// Source is a source of events of a stream.
type Source = func(context.Context, *stream.EventWriter) error

// Live serves the stream of a page. open returns the Updates of the page, and other sources of events.
func (s *Site) Live(open func(*http.Request, api.Caller) (Updates, []Source, error)) http.Handler {
	return s.private(func(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
		after, err := s.resumeAfter(r)
		if err != nil {
			return err
		}
		release, err := s.live.Acquire(caller, cmp.Or(s.LivePages, defaultLivePages), "Too many pages of this "+
			"account are open. Close some of them.")
		if err != nil {
			return err
		}
		defer release()
		if err := s.reach(r.Context(), after); errors.Is(err, errReload) {
			return s.reload(w, r)
		} else if err != nil {
			return err
		}
		update, others, err := open(r, caller) // which reads rows that the page has
		if errors.Is(err, errReload) || errors.Is(err, query.ErrNotFound) {
			return s.reload(w, r)
		}
		if err != nil {
			return err
		}
		sources := append(others, ping, s.follow(after, update))
		return stream.ServeEvents(s.API, w, r, s.API.Accounts.Ended(caller.Session), sources...)
	}, func(w http.ResponseWriter, r *http.Request) { _ = s.reload(w, r) })
}

// errReload says that a stream cannot bring a page up to date.
var errReload = errors.New("the page must be loaded again")

// reload serves a stream that tells the page to load itself again.
func (s *Site) reload(w http.ResponseWriter, r *http.Request) error {
	return stream.ServeEvents(s.API, w, r, nil, func(_ context.Context, out *stream.EventWriter) error {
		return out.Send("", "reload", []byte("null"))
	})
}

// resumeAfter returns the sequence of the page that a browser has.
func (s *Site) resumeAfter(r *http.Request) (uint64, error) {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = r.URL.Query().Get("after")
	}
	after, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, api.BadField("after", "validation_invalid_type", "want the sequence of an event, got %q",
			api.Truncate(text, 40))
	}
	return after, nil
}

// ping tells the page that it is connected. A browser does not show a comment of the stream to the page.
func ping(ctx context.Context, out *stream.EventWriter) error {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		if err := out.Send("", "ping", []byte("null")); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// follow sends what a page of a sequence lacks, then what changes. The stream ends when the account may no longer see
// the page.
func (s *Site) follow(after uint64, update Updates) Source {
	return func(ctx context.Context, out *stream.EventWriter) error {
		for {
			elements, seq, err := update(ctx, after)
			if errors.Is(err, query.ErrNotFound) {
				return out.Send("", "reload", []byte("null"))
			}
			if err != nil {
				return err
			}
			if len(elements) > 0 {
				if err := out.Send(strconv.FormatUint(seq, 10), "message", jsonText(string(elements))); err != nil {
					return err
				}
			}
			after = seq
			if err := s.API.Model.Wait(ctx, seq+1); err != nil {
				return err
			}
			if err := sleep.For(ctx, coalesce); err != nil {
				return err
			}
		}
	}
}

// reach waits until the read models are as new as the page. After a restart they can be older.
func (s *Site) reach(ctx context.Context, after uint64) error {
	if after <= s.API.Model.Seq() {
		return nil
	}
	last, err := s.Log.Last(ctx)
	if err != nil {
		return err
	}
	if after > last {
		return errReload
	}
	return s.API.Model.Wait(ctx, after)
}

// jsonText returns a text as JSON, which has no line break.
func jsonText(text any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // texts
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Changed returns rendered elements unless they are those that were sent last.
type Changed struct{ last []byte }

func (c *Changed) Render(ctx context.Context, components ...templ.Component) ([]byte, error) {
	var b bytes.Buffer
	if err := templ.Join(components...).Render(ctx, &b); err != nil {
		return nil, err
	}
	if bytes.Equal(b.Bytes(), c.last) {
		return nil, nil
	}
	c.last = b.Bytes()
	return b.Bytes(), nil
}
