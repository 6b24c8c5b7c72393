package conversation

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/requests"
	"pocketcoder/web/pages/site"

	"github.com/pocketbase/dbx"
)

func (c Conversation) liveChats(r *http.Request, caller api.Caller) (site.Updates, []site.Source, error) {
	var sent site.Changed
	which := listedIn(r)
	var away *absenceSummary // when the page connected
	return func(ctx context.Context, _ uint64) ([]byte, uint64, error) {
		l, err := c.chatList(ctx, caller, which)
		if err != nil {
			return nil, 0, err
		}
		if away == nil {
			a, err := c.away(ctx, caller, l.chats)
			if err != nil {
				return nil, 0, err
			}
			away = &a
		}
		b, err := sent.Render(ctx, site.RequestsLink("/"), whileAway(*away), chatRows(l))
		return b, l.seq, err
	}, nil, nil
}

func (c Conversation) liveChat(r *http.Request, caller api.Caller) (site.Updates, []site.Source, error) {
	from, err := site.PositionOf(r, "from")
	if err != nil {
		return nil, nil, err
	}
	chat := r.PathValue("id")
	since, err := c.FragmentsSince(r.Context(), caller, chat, timeline.WritingSince)
	if err != nil {
		return nil, nil, err
	}
	var head site.Changed
	var work *timeline.Progress // changes with the entries
	update := func(ctx context.Context, after uint64) ([]byte, uint64, error) {
		v, err := c.chatSince(ctx, caller, chat, timeline.Window{From: from}, after, work)
		if err != nil {
			return nil, 0, err
		}
		work = &v.work
		b, err := head.Render(ctx, site.RequestsLink(""), chatHead(v), chatMenu(v), newest(v.chat), foot(v),
			sendButtons(v))
		if err != nil {
			return nil, 0, err
		}
		b, err = appendChanged(ctx, b, v.entries)
		return b, v.seq, err
	}
	return update, []site.Source{c.text(chat, since)}, nil
}

func appendChanged(ctx context.Context, elements []byte, entries []timeline.Entry) ([]byte, error) {
	var b bytes.Buffer
	b.Write(elements)
	for _, e := range entries {
		if err := Changed(e, requests.FromChat).Render(ctx, &b); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// chatSince returns a chat with the entries that changed after a sequence. work is what is known about its work, nil
// for nothing.
func (c Conversation) chatSince(ctx context.Context, caller api.Caller, chat string, w timeline.Window, after uint64,
	work *timeline.Progress) (v chatView, err error) {
	err = c.API.SlowView(ctx, caller.Key(), func(db dbx.Builder, seq uint64) (err error) {
		if v, err = c.chatIn(ctx, db, caller, chat); err != nil {
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
		v.work, err = timeline.ReadProgress(ctx, db, v.chat)
		return err
	})
	return v, err
}

// text is the source of the text that is being written in a chat, and of what running commands print.
func (c Conversation) text(chat string, since time.Time) site.Source {
	running := outputs{Conversation: c, calls: map[string]string{}, sent: site.LiveOutput{}}
	return c.Writing(since, events.ChatDeltaFilters(chat), func(ctx context.Context, d log.Delta) (site.Fragment, bool) {
		if d.Type == log.ExecOutput {
			return running.fragment(ctx, d)
		}
		return fragmentOf(d)
	})
}

// fragmentOf returns the text that a delta appends to a part, and whether it does.
func fragmentOf(d log.Delta) (f site.Fragment, ok bool) {
	var delta struct{ PartID, Field, Delta string }
	if json.Unmarshal(d.Data, &delta) != nil || delta.Field != "text" || delta.PartID == "" {
		return f, false // a fragment is never needed
	}
	return site.Fragment{Part: delta.PartID, Text: delta.Delta}, true
}
