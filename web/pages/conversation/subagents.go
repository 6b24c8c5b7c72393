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
	t, err := c.readTranscript(r.Context(), r, caller, newestMessages, 0)
	return subagentPage(t), err
}

// newestMessages stands for the position from which a page shows the newest messages.
const newestMessages = -1

// readTranscript returns a subagent of a chat that the account may view, with its messages from a position that changed
// after an event.
func (c Conversation) readTranscript(ctx context.Context, r *http.Request, caller api.Caller, from int64,
	after uint64) (t transcript, err error) {
	chat, id := r.PathValue("id"), r.PathValue("subagent")
	err = c.API.SlowView(ctx, caller.Key(), func(db dbx.Builder, seq uint64) (err error) {
		t.seq, t.from = seq, from
		if t.chat, err = c.Chat(ctx, db, caller, chat); err != nil {
			return err
		}
		tree, err := timeline.Subagents(ctx, db, chat)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(tree, func(a timeline.Subagent) bool { return a.ID == id })
		if i < 0 {
			return query.ErrNotFound
		}
		t.agent = tree[i]
		if from == newestMessages {
			if t.from, err = timeline.TranscriptStart(ctx, db, chat, t.agent.Session, MaxMessages); err != nil {
				return err
			}
		}
		if t.entries, err = timeline.Transcript(ctx, db, chat, t.agent.Session, t.from, after); err != nil {
			return err
		}
		return c.CountPending(ctx, db)
	})
	return t, err
}

func (c Conversation) liveSubagent(r *http.Request, caller api.Caller) (site.Updates, []site.Source, error) {
	from, err := site.PositionOf(r, "from")
	if err != nil {
		return nil, nil, err
	}
	var head site.Changed
	return func(ctx context.Context, after uint64) ([]byte, uint64, error) {
		t, err := c.readTranscript(ctx, r, caller, from, after)
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
