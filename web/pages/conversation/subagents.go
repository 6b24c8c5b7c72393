package conversation

import (
	"context"
	"net/http"
	"net/url"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/projections"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/query"
)

// transcript holds the messages of a subagent at one moment.
type transcript struct {
	chat     timeline.Chat
	pending  int // requests and questions that wait for a person, of all chats
	agent    timeline.Subagent
	messages []projections.ShownMessage
	seq      uint64
}

func (c Conversation) showSubagent(r *http.Request, who api.Caller) (templ.Component, error) {
	t, err := c.transcript(r.Context(), who, r.PathValue("id"), r.PathValue("subagent"))
	if err != nil {
		return nil, err
	}
	return subagentPage(who, t), nil
}

func (c Conversation) transcript(ctx context.Context, who api.Caller, chat, id string) (t transcript, err error) {
	err = c.API.Ask(ctx, who.Key(), func(db dbx.Builder, seq uint64) error {
		t = transcript{seq: seq}
		var err error
		if t.chat, err = c.Chat(ctx, db, who, chat); err != nil {
			return err
		}
		tree, err := timeline.Subagents(ctx, db, chat)
		if err != nil {
			return err
		}
		for _, a := range tree {
			if a.ID == id {
				t.agent = a
			}
		}
		if t.agent.ID == "" {
			return query.ErrNotFound
		}
		if t.messages, err = timeline.Transcript(ctx, db, chat, t.agent.Session, MaxMessages); err != nil {
			return err
		}
		waiting, err := c.Pending(ctx, db, who)
		t.pending = len(waiting)
		return err
	})
	return t, err
}

func (c Conversation) liveSubagent(r *http.Request, who api.Caller) (site.Updates, []site.Source, error) {
	var sent site.Changed
	return func(ctx context.Context, _ uint64) ([]byte, uint64, error) {
		t, err := c.transcript(ctx, who, r.PathValue("id"), r.PathValue("subagent"))
		if err != nil {
			return nil, 0, err
		}
		b, err := sent.Render(ctx, site.RequestsLink(t.pending, ""), subagentState(t), transcriptLog(t))
		return b, t.seq, err
	}, nil, nil
}

// stopSubagent ends the turn of a subagent.
func (c Conversation) stopSubagent(_ http.ResponseWriter, r *http.Request, who api.Caller) (string, error) {
	chat, id := r.PathValue("id"), r.PathValue("subagent")
	return subagentPath(chat, id), c.Records.Delete(r.Context(), who, "subagents", id)
}

func subagentPath(chat, id string) string {
	return site.ChatPath(chat) + "/subagents/" + url.PathEscape(id)
}
