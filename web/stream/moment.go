package stream

import (
	"context"
	"net/http"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

// moment describes a chat at an event in the OpenAPI description. Package query encodes its records.
type moment struct {
	Sequence    uint64          `json:"sequence"` // of the last event included
	Chat        api.AnyRecord   `json:"chat"`
	Messages    []api.AnyRecord `json:"messages"`
	Permissions []api.AnyRecord `json:"permissions"`
	Questions   []api.AnyRecord `json:"questions"`
	Executions  []api.AnyRecord `json:"executions"`
	Subagents   []api.AnyRecord `json:"subagents"`
}

// momentLists are the collections of a moment and their sort.
var momentLists = map[string]string{
	"messages": "position,id", "permissions": "created,id", "questions": "created,index,id", "executions": "created,id", "subagents": "created,id",
}

// replayChat answers with a chat as it was at an event, computed from the log.
func (s *Streams) replayChat(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	chat := r.PathValue("id")
	if !caller.IsOperator { // who may read the events of a deleted chat too
		if err := s.API.MayView(r.Context(), caller, "chats", chat); err != nil {
			return err
		}
	}
	at, err := s.momentOf(r)
	if err != nil {
		return err
	}
	// A caller who may see the chat now may see its whole history, also from before it owned the chat.
	request := caller.Request()
	request.Superuser = true
	return s.API.AnswerSlowQuery(w, r, caller, func() (any, error) { return s.momentAt(r.Context(), chat, at, request) })
}

// momentAt returns a chat as it was at an event.
func (s *Streams) momentAt(ctx context.Context, chat string, at uint64, request query.Request) (any, error) {
	answer := map[string]any{"sequence": at}
	err := projections.MomentAt(ctx, s.Log, chat, at, func(db dbx.Builder, _ events.Event) (err error) {
		c, _ := s.API.Catalogue.Get("chats")
		if answer["chat"], err = query.View(ctx, db, s.API.Catalogue, c, chat, request, query.Query{}); err != nil {
			return err
		}
		for name, order := range momentLists {
			if answer[name], err = s.listAll(ctx, db, name, order, request); err != nil {
				return err
			}
		}
		return nil
	})
	return answer, err
}

// momentOf returns the sequence that the query asks for, by default the newest.
func (s *Streams) momentOf(r *http.Request) (uint64, error) {
	last, err := s.Log.Last(r.Context())
	if err != nil || !r.URL.Query().Has("at") {
		return last, err
	}
	text := r.URL.Query().Get("at")
	at, err := sequenceOf("at", text)
	if err == nil && (at == 0 || at > last) {
		err = api.BadField("at", "validation_invalid_value", "want the sequence of an event, from 1 to %d, got %q", last,
			api.Truncate(text, 40))
	}
	return at, err
}

func (s *Streams) listAll(ctx context.Context, db dbx.Builder, name, order string,
	request query.Request) ([]query.Record, error) {
	c, _ := s.API.Catalogue.Get(name)
	all := []query.Record{}
	for q := (query.Query{Sort: order, PerPage: 1000, SkipTotal: true, Page: 1, Large: true}); ; q.Page++ {
		page, err := query.List(ctx, db, s.API.Catalogue, c, request, q)
		if err != nil {
			return nil, err
		}
		if all = append(all, page.Items...); len(page.Items) < page.PerPage {
			return all, nil
		}
	}
}
