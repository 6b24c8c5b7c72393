// Package requests serves permission requests, questions and pending MCP servers: their cards, the page of all that
// wait, and the page of one request.
//
// Promises: a card shows exactly what an approval would allow, whole, and with hidden characters visible. A decision
// names the request that its form showed, and is refused for any other.
//
// It must not decide anything.
package requests

import (
	"context"
	"net/http"

	"pocketcoder/web/pages/site"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
)

// Requests serves permission requests and questions.
type Requests struct{ *site.Site }

// Handle adds the pages to a mux.
func (q Requests) Handle(mux *http.ServeMux) {
	mux.Handle("GET /requests", q.Page(q.listRequests))
	mux.Handle("POST /requests", q.Command(q.decideGroup))
	mux.Handle("GET /requests/live", q.Live(q.liveRequests))
	mux.Handle("GET /requests/{id}", q.Page(q.showRequest))
	mux.Handle("GET /requests/{id}/live", q.Live(q.liveRequest))
	mux.Handle("GET /requests/{id}/always", q.Page(q.showAlways))
	mux.Handle("POST /requests/{id}/always", q.Command(q.saveAlways))
	mux.Handle("POST /requests/{id}/host", q.Command(q.allowHost))
	mux.Handle("POST /servers/{id}", q.Command(q.decideServer))
	mux.Handle("POST /chats/{id}/requests/{request}", q.Command(q.decide))
	mux.Handle("POST /chats/{id}/questions/{question}", q.Command(q.answerQuestion))
}

// requestList is all that waits for a person in the chats that an account sees, at one moment.
type requestList struct {
	entries []timeline.Entry
	seq     uint64
}

func (q Requests) listRequests(r *http.Request, caller api.Caller) (templ.Component, error) {
	l, err := q.requestList(r.Context(), caller)
	return requestsPage(caller, l), err
}

func (q Requests) requestList(ctx context.Context, caller api.Caller) (l requestList, err error) {
	err = q.API.SlowView(ctx, caller.Key(), func(db dbx.Builder, seq uint64) (err error) {
		l.seq = seq
		l.entries, err = q.Pending(ctx, db, caller)
		return err
	})
	return l, err
}

func (q Requests) liveRequests(_ *http.Request, caller api.Caller) (site.Updates, []site.Source, error) {
	var sent site.Changed
	return func(ctx context.Context, _ uint64) ([]byte, uint64, error) {
		l, err := q.requestList(ctx, caller)
		if err != nil {
			return nil, 0, err
		}
		b, err := sent.Render(ctx, site.RequestsLink("/requests"), requestCards(l))
		return b, l.seq, err
	}, nil, nil
}

// groups puts requests for exactly the same together, where the first of them is. Other entries are alone.
func groups(entries []timeline.Entry) (all [][]timeline.Entry) {
	at := map[string]int{} // by hash of the request
	for _, e := range entries {
		if e.Request == nil {
			all = append(all, []timeline.Entry{e})
		} else if i, known := at[e.Request.Request]; known {
			all[i] = append(all[i], e)
		} else {
			at[e.Request.Request] = len(all)
			all = append(all, []timeline.Entry{e})
		}
	}
	return all
}
