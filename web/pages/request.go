package pages

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

// fromRequest names the page of one request in the forms of its card.
const fromRequest = "request"

// requestView is one permission request at one moment.
type requestView struct {
	entry   timeline.Entry
	pending int // requests and questions that wait for a person, of all chats
	seq     uint64
}

func (p *Pages) showRequest(r *http.Request, who api.Caller) (templ.Component, error) {
	v, err := p.request(r.Context(), who, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return requestPage(who, v), nil
}

// request returns the request with an id: OpenCode's, which notifications have, or that of the record.
func (p *Pages) request(ctx context.Context, who api.Caller, id string) (v requestView, err error) {
	text, err := json.Marshal(id)
	if err != nil {
		return v, err
	}
	err = p.API.Ask(ctx, who.Key(), func(db dbx.Builder, seq uint64) error {
		v.seq = seq
		filter := "ai_engine_permission_id = " + string(text) + " || id = " + string(text)
		ids, err := p.visible(ctx, db, who, "permissions", query.Query{Sort: "-created", Filter: filter, PerPage: 1})
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return query.ErrNotFound
		}
		if v.entry, err = timeline.RequestEntry(ctx, db, ids[0]); err != nil {
			return err
		}
		waiting, err := p.pendingIn(ctx, db, who)
		v.pending = len(waiting)
		return err
	})
	return v, err
}

func (p *Pages) liveRequest(r *http.Request, who api.Caller) (updates, []source, error) {
	var sent changed
	return func(ctx context.Context, _ uint64) ([]byte, uint64, error) {
		v, err := p.request(ctx, who, r.PathValue("id"))
		if err != nil {
			return nil, 0, err
		}
		b, err := sent.render(ctx, requestsLink(v.pending, "/requests"), requestCard(v.entry, fromRequest))
		return b, v.seq, err
	}, nil, nil
}

// openChat redirects the address /?chat=ID, which is in notifications, to the page of the chat.
func openChat(list http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if chat := r.URL.Query().Get("chat"); chat != "" {
			http.Redirect(w, r, chatPath(url.PathEscape(chat)), http.StatusSeeOther)
			return
		}
		list.ServeHTTP(w, r)
	})
}

func singleRequestPath(id string) string { return "/requests/" + url.PathEscape(id) }
