package requests

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"pocketcoder/web/pages/site"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

// requestView is one permission request at one moment.
type requestView struct {
	entry timeline.Entry
	seq   uint64
}

func (q Requests) showRequest(r *http.Request, caller api.Caller) (templ.Component, error) {
	v, err := q.request(r.Context(), caller, r.PathValue("id"))
	return requestPage(v), err
}

// request returns the request with an id: OpenCode's, which notifications have, or that of the record.
func (q Requests) request(ctx context.Context, caller api.Caller, id string) (v requestView, err error) {
	text, err := json.Marshal(id)
	if err != nil {
		return v, err
	}
	err = q.API.SlowView(ctx, caller.Key(), func(db dbx.Builder, seq uint64) error {
		v.seq = seq
		filter := "ai_engine_permission_id = " + string(text) + " || id = " + string(text)
		ids, err := q.Visible(ctx, db, caller, "permissions", query.Query{Sort: "-created", Filter: filter, PerPage: 1})
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return query.ErrNotFound
		}
		if v.entry, err = timeline.RequestEntry(ctx, db, ids[0]); err != nil {
			return err
		}
		return q.CountPending(ctx, db)
	})
	return v, err
}

func (q Requests) liveRequest(r *http.Request, caller api.Caller) (site.Updates, []site.Source, error) {
	var sent site.Changed
	return func(ctx context.Context, _ uint64) ([]byte, uint64, error) {
		v, err := q.request(ctx, caller, r.PathValue("id"))
		if err != nil {
			return nil, 0, err
		}
		b, err := sent.Render(ctx, site.RequestsLink("/requests"), requestCard(v.entry, fromRequest))
		return b, v.seq, err
	}, nil, nil
}

func singleRequestPath(id string) string { return "/requests/" + url.PathEscape(id) }
