package pages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/visible"
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
	pingEvery = 15 * time.Second
	coalesce  = 50 * time.Millisecond // the shortest time between two renderings of a page
)

// updates renders what a page of a sequence lacks, and returns the sequence of the page with it. It returns no bytes if the page
// lacks nothing.
type updates func(ctx context.Context, after uint64) (elements []byte, seq uint64, err error)

// source is a source of events of a stream.
type source = func(context.Context, *stream.EventWriter) error

// live serves the stream of a page. open returns what updates the page, and other sources of events.
func (p *Pages) live(open func(*http.Request, api.Caller) (updates, []source, error)) http.Handler {
	return p.private(func(w http.ResponseWriter, r *http.Request, who api.Caller) error {
		after, err := p.resumeAfter(r)
		if err != nil {
			return err
		}
		update, others, err := open(r, who)
		if errors.Is(err, errReload) || errors.Is(err, query.ErrNotFound) {
			return p.reload(w, r)
		}
		if err != nil {
			return err
		}
		sources := append(others, ping, p.follow(after, update))
		return stream.ServeEvents(p.API, w, r, p.API.Accounts.Ended(who.Session), sources...)
	}, func(w http.ResponseWriter, r *http.Request) { _ = p.reload(w, r) })
}

// errReload says that a stream cannot bring a page up to date.
var errReload = errors.New("the page must be loaded again")

// reload serves a stream that tells the page to load itself again.
func (p *Pages) reload(w http.ResponseWriter, r *http.Request) error {
	return stream.ServeEvents(p.API, w, r, nil, func(_ context.Context, out *stream.EventWriter) error {
		return out.Send("", "reload", []byte("null"))
	})
}

// resumeAfter returns the sequence of the page that a browser has.
func (p *Pages) resumeAfter(r *http.Request) (uint64, error) {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = r.URL.Query().Get("after")
	}
	after, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, api.BadField("after", "validation_invalid_type", "want the sequence of an event, got %q", api.Shortened(text, 40))
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

// follow sends what a page of a sequence lacks, then what changes. The stream ends when the account may no longer see the page.
func (p *Pages) follow(after uint64, update updates) source {
	return func(ctx context.Context, out *stream.EventWriter) error {
		if err := p.reach(ctx, after); errors.Is(err, errReload) {
			return out.Send("", "reload", []byte("null"))
		} else if err != nil {
			return err
		}
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
			if err := p.API.Model.Wait(ctx, seq+1); err != nil {
				return err
			}
			select {
			case <-time.After(coalesce):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// reach waits until the read models are as new as the page. After a restart they can be older.
func (p *Pages) reach(ctx context.Context, after uint64) error {
	if after <= p.API.Model.Seq() {
		return nil
	}
	last, err := p.Log.Last(ctx)
	if err != nil {
		return err
	}
	if after > last {
		return errReload
	}
	return p.API.Model.Wait(ctx, after)
}

// jsonText returns a text as JSON, which has no line break.
func jsonText(text any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // texts
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// changed returns rendered elements unless they are those that were sent last.
type changed struct{ last []byte }

func (c *changed) render(ctx context.Context, components ...templ.Component) ([]byte, error) {
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

func (p *Pages) liveChats(r *http.Request, who api.Caller) (updates, []source, error) {
	var sent changed
	archived := archivedOnly(r)
	return func(ctx context.Context, _ uint64) ([]byte, uint64, error) {
		l, err := p.chatList(ctx, who, archived)
		if err != nil {
			return nil, 0, err
		}
		b, err := sent.render(ctx, requestsLink(l.pending, "/"), chatRows(l))
		return b, l.seq, err
	}, nil, nil
}

func (p *Pages) liveRequests(_ *http.Request, who api.Caller) (updates, []source, error) {
	var sent changed
	return func(ctx context.Context, _ uint64) ([]byte, uint64, error) {
		l, err := p.requestList(ctx, who)
		if err != nil {
			return nil, 0, err
		}
		b, err := sent.render(ctx, requestsLink(len(l.entries), "/requests"), requestCards(l))
		return b, l.seq, err
	}, nil, nil
}

func (p *Pages) liveChat(r *http.Request, who api.Caller) (updates, []source, error) {
	from, err := positionOf(r, "from")
	if err != nil {
		return nil, nil, err
	}
	chat := r.PathValue("id")
	since, err := p.writingSince(r.Context(), who, chat)
	if err != nil {
		return nil, nil, err
	}
	var head changed
	var work *timeline.Work // changes with the entries
	update := func(ctx context.Context, after uint64) ([]byte, uint64, error) {
		v, err := p.chatSince(ctx, who, chat, timeline.Window{From: from}, after, work)
		if err != nil {
			return nil, 0, err
		}
		work = &v.work
		b, err := head.render(ctx, requestsLink(v.pending, ""), chatHead(v), chatMenu(v), foot(v))
		if err != nil {
			return nil, 0, err
		}
		var elements bytes.Buffer
		elements.Write(b)
		for _, e := range v.entries {
			if err := liveEntry(e).Render(ctx, &elements); err != nil {
				return nil, 0, err
			}
		}
		return elements.Bytes(), v.seq, nil
	}
	text := func(ctx context.Context, out *stream.EventWriter) error { return p.sendText(ctx, out, chat, since) }
	return update, []source{text}, nil
}

// chatSince returns a chat with the entries that changed after a sequence. work is what is known about its work, nil for nothing.
func (p *Pages) chatSince(ctx context.Context, who api.Caller, chat string, w timeline.Window, after uint64, work *timeline.Work) (v chatView, err error) {
	err = p.API.Ask(ctx, who.Key(), func(db dbx.Builder, seq uint64) (err error) {
		if v, err = p.chatIn(ctx, db, who, chat); err != nil {
			return err
		}
		v.seq = seq
		if v.entries, err = timeline.Entries(ctx, db, chat, w, after); err != nil {
			return err
		}
		if work != nil && len(v.entries) == 0 {
			v.work = *work
			return nil
		}
		v.work, err = timeline.WorkOf(ctx, db, v.chat)
		return err
	})
	return v, err
}

// clockSkew is how much older than the record of its message a fragment may be, because the clocks of two machines differ.
const clockSkew = 10 * time.Second

// writingSince returns the time since which fragments of a chat matter: since the answer began that is being written.
func (p *Pages) writingSince(ctx context.Context, who api.Caller, chat string) (time.Time, error) {
	since := time.Now()
	err := p.API.Ask(ctx, who.Key(), func(db dbx.Builder, _ uint64) error {
		if _, err := p.chatIn(ctx, db, who, chat); err != nil {
			return err
		}
		began, err := timeline.WritingSince(ctx, db, chat)
		if at, wrong := time.Parse(events.TimeFormat, began); wrong == nil {
			since = at
		}
		return err
	})
	return since.Add(-clockSkew), err
}

// maxFragments is the largest number of fragments that wait for a stream.
const maxFragments = 256

// fragment is a piece of the text of a part.
type fragment struct {
	Part string `json:"part"`
	Text string `json:"text"`
}

// sendText sends the text that is being written in a chat. It sends together what arrived together.
func (p *Pages) sendText(ctx context.Context, out *stream.EventWriter, chat string, since time.Time) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	arrived := make(chan fragment, maxFragments)
	go func() {
		cancel(p.Log.ReadDeltas(ctx, since, events.ChatDeltaFilters(chat)[:1], func(d log.Delta) {
			if f, ok := fragmentOf(d); ok {
				select {
				case arrived <- f:
				case <-ctx.Done():
				}
			}
		}))
	}()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case f := <-arrived:
			if err := sendFragments(out, f, arrived); err != nil {
				return err
			}
		}
	}
}

// sendFragments sends a fragment and those that arrived since, the fragments of a part in a row as one.
func sendFragments(out *stream.EventWriter, f fragment, arrived <-chan fragment) error {
	var text strings.Builder
	text.WriteString(f.Text)
	send := func() error {
		return out.Send("", "text", jsonText(fragment{f.Part, visible.Plain(text.String())}))
	}
	for range len(arrived) {
		next := <-arrived
		if next.Part != f.Part {
			if err := send(); err != nil {
				return err
			}
			f = next
			text.Reset()
		}
		text.WriteString(next.Text)
	}
	return send()
}

// fragmentOf returns the text that a delta appends to a part, and whether it does.
func fragmentOf(d log.Delta) (f fragment, ok bool) {
	var delta struct{ PartID, Field, Delta string }
	if json.Unmarshal(d.Data, &delta) != nil || delta.Field != "text" || delta.PartID == "" {
		return f, false // a fragment is never needed
	}
	return fragment{delta.PartID, delta.Delta}, true
}
