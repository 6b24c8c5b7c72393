package conversation

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/query"
)

// transcript holds the messages of a subagent at one moment, or those that changed.
type transcript struct {
	chat    timeline.Chat
	agent   timeline.Subagent
	from    int64 // position of the first message
	entries []timeline.Entry
	seq     uint64
}

func (c Conversation) showSubagent(r *http.Request, caller api.Caller) (templ.Component, error) {
	var t transcript
	err := c.API.SlowView(r.Context(), caller.Key(), func(db dbx.Builder, seq uint64) (err error) {
		if t, err = c.subagentIn(r.Context(), db, caller, r.PathValue("id"), r.PathValue("subagent")); err != nil {
			return err
		}
		t.seq = seq
		if t.from, err = timeline.TranscriptStart(r.Context(), db, t.chat.ID, t.agent.Session, MaxMessages); err != nil {
			return err
		}
		t.entries, err = timeline.Transcript(r.Context(), db, t.chat.ID, t.agent.Session, t.from, 0)
		return err
	})
	return subagentPage(t), err
}

// subagentIn returns a subagent of a chat that the account may view, without its messages.
func (c Conversation) subagentIn(ctx context.Context, db dbx.Builder, caller api.Caller,
	chat, id string) (t transcript, err error) {
	if t.chat, err = c.Chat(ctx, db, caller, chat); err != nil {
		return t, err
	}
	tree, err := timeline.Subagents(ctx, db, chat)
	if err != nil {
		return t, err
	}
	i := slices.IndexFunc(tree, func(a timeline.Subagent) bool { return a.ID == id })
	if i < 0 {
		return t, query.ErrNotFound
	}
	t.agent = tree[i]
	return t, c.CountPending(ctx, db)
}

func (c Conversation) liveSubagent(r *http.Request, caller api.Caller) (site.Updates, []site.Source, error) {
	from, err := site.PositionOf(r, "from")
	if err != nil {
		return nil, nil, err
	}
	var head site.Changed
	return func(ctx context.Context, after uint64) ([]byte, uint64, error) {
		var t transcript
		err := c.API.SlowView(ctx, caller.Key(), func(db dbx.Builder, seq uint64) (err error) {
			if t, err = c.subagentIn(ctx, db, caller, r.PathValue("id"), r.PathValue("subagent")); err != nil {
				return err
			}
			t.seq = seq
			t.entries, err = timeline.Transcript(ctx, db, t.chat.ID, t.agent.Session, from, after)
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		b, err := head.Render(ctx, site.RequestsLink(""), subagentState(t))
		if err != nil {
			return nil, 0, err
		}
		b, err = appendChanged(ctx, b, t.entries)
		return b, t.seq, err
	}, nil, nil
}

// stopSubagent ends the turn of a subagent.
func (c Conversation) stopSubagent(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	chat, id := r.PathValue("id"), r.PathValue("subagent")
	return subagentPath(chat, id), c.Records.Delete(r.Context(), caller, "subagents", id)
}

func subagentPath(chat, id string) string {
	return site.ChatPath(chat) + "/subagents/" + url.PathEscape(id)
}
