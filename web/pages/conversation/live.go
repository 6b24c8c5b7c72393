package conversation

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/requests"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/pages/visible"
	"pocketcoder/web/stream"

	"github.com/pocketbase/dbx"
)

func (c Conversation) liveChats(r *http.Request, who api.Caller) (site.Updates, []site.Source, error) {
	var sent site.Changed
	archived := archivedOnly(r)
	return func(ctx context.Context, _ uint64) ([]byte, uint64, error) {
		l, err := c.chatList(ctx, who, archived)
		if err != nil {
			return nil, 0, err
		}
		b, err := sent.Render(ctx, site.RequestsLink(l.pending, "/"), chatRows(l))
		return b, l.seq, err
	}, nil, nil
}

func (c Conversation) liveChat(r *http.Request, who api.Caller) (site.Updates, []site.Source, error) {
	from, err := site.PositionOf(r, "from")
	if err != nil {
		return nil, nil, err
	}
	chat := r.PathValue("id")
	since, err := c.writingSince(r.Context(), who, chat)
	if err != nil {
		return nil, nil, err
	}
	var head site.Changed
	var work *timeline.Work // changes with the entries
	update := func(ctx context.Context, after uint64) ([]byte, uint64, error) {
		v, err := c.chatSince(ctx, who, chat, timeline.Window{From: from}, after, work)
		if err != nil {
			return nil, 0, err
		}
		work = &v.work
		b, err := head.Render(ctx, site.RequestsLink(v.pending, ""), chatHead(v), chatMenu(v), newest(v.chat), foot(v))
		if err != nil {
			return nil, 0, err
		}
		var elements bytes.Buffer
		elements.Write(b)
		for _, e := range v.entries {
			if err := Changed(e, requests.FromChat).Render(ctx, &elements); err != nil {
				return nil, 0, err
			}
		}
		return elements.Bytes(), v.seq, nil
	}
	text := func(ctx context.Context, out *stream.EventWriter) error { return c.sendText(ctx, out, chat, since) }
	return update, []site.Source{text}, nil
}

// chatSince returns a chat with the entries that changed after a sequence. work is what is known about its work, nil for nothing.
func (c Conversation) chatSince(ctx context.Context, who api.Caller, chat string, w timeline.Window, after uint64, work *timeline.Work) (v chatView, err error) {
	err = c.API.Ask(ctx, who.Key(), func(db dbx.Builder, seq uint64) (err error) {
		if v, err = c.chatIn(ctx, db, who, chat); err != nil {
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
func (c Conversation) writingSince(ctx context.Context, who api.Caller, chat string) (time.Time, error) {
	since := time.Now()
	err := c.API.Ask(ctx, who.Key(), func(db dbx.Builder, _ uint64) error {
		if _, err := c.chatIn(ctx, db, who, chat); err != nil {
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

// sendText sends the text that is being written in a chat, and what running commands print. It sends together what arrived together.
func (c Conversation) sendText(ctx context.Context, out *stream.EventWriter, chat string, since time.Time) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	arrived := make(chan fragment, maxFragments)
	running := outputs{Conversation: c, calls: map[string]string{}, sent: map[string]int{}}
	go func() {
		cancel(c.Log.ReadDeltas(ctx, since, events.ChatDeltaFilters(chat), func(d log.Delta) {
			f, ok := fragmentOf(d)
			if d.Type == log.ExecOutput {
				f, ok = running.fragment(ctx, d)
			}
			if ok {
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
		return out.Send("", "text", site.JSONText(fragment{f.Part, visible.Plain(text.String())}))
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
