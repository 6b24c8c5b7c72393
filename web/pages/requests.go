package pages

import (
	"context"
	"net/http"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
)

// requestList is all that waits for a person in the chats that an account sees, at one moment.
type requestList struct {
	entries []timeline.Entry
	seq     uint64
}

func (p *Pages) listRequests(r *http.Request, who api.Caller) (templ.Component, error) {
	l, err := p.requestList(r.Context(), who)
	if err != nil {
		return nil, err
	}
	return requestsPage(who, l), nil
}

func (p *Pages) requestList(ctx context.Context, who api.Caller) (l requestList, err error) {
	err = p.API.Ask(ctx, who.Key(), func(db dbx.Builder, seq uint64) (err error) {
		l.seq = seq
		l.entries, err = p.pendingIn(ctx, db, who)
		return err
	})
	return l, err
}
