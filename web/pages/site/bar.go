package site

import (
	"context"
	"net/http"

	"github.com/pocketbase/dbx"

	"pocketcoder/web/api"
)

// bar is what the top of a page shows. The context of a request holds it.
type bar struct {
	caller  api.Caller
	pending int  // requests and questions that wait for a person, of all chats
	counted bool // pending is set
}

type barKey struct{}

// withBar returns the request of an account with the bar of its page.
func withBar(r *http.Request, caller api.Caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), barKey{}, &bar{caller: caller}))
}

// barOf returns the bar of a page, nil for one that a guest sees.
func barOf(ctx context.Context) *bar {
	b, _ := ctx.Value(barKey{}).(*bar)
	return b
}

// CountPending counts what waits for the account of the request, for the bar. A live page calls it for each update.
func (s *Site) CountPending(ctx context.Context, db dbx.Builder) error {
	_, err := s.Pending(ctx, db, barOf(ctx).caller)
	return err
}

// fillBar counts what waits for a person, unless the page has done so.
func (s *Site) fillBar(ctx context.Context) error {
	b := barOf(ctx)
	if b.counted {
		return nil
	}
	return s.API.SlowView(ctx, b.caller.Key(), func(db dbx.Builder, _ uint64) error { return s.CountPending(ctx, db) })
}
