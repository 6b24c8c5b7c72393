package realtime

import (
	"context"
	"errors"

	"github.com/pocketbase/dbx"

	"pocketcoder/web/query"
)

// audience is all subscriptions of one account to one topic. A change is read and encoded once for all of them.
type audience struct {
	source
	topic topic
	group string // of rows whose changes concern it
}

// newAudience starts an audience for changes after the sequence now. registry.mu must be held.
func (s *Realtime) newAudience(ctx context.Context, key string, t topic, now uint64) *audience {
	ctx, end := context.WithCancel(ctx)
	a := &audience{source: source{key: key, subs: map[*subscription]bool{}, done: now, wake: make(chan struct{}, 1),
		end: end}, topic: t, group: groupOfCollection(t.collection)}
	s.registry.audiences[key] = a
	go s.runAudience(ctx, a)
	return a
}

// runAudience passes changes to the subscriptions until there are none.
func (s *Realtime) runAudience(ctx context.Context, a *audience) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		for more := true; more; {
			page, upTo, further, err := s.changes(ctx, a.topic, a.topic.ids(), a.done)
			if err != nil {
				s.failSubscriptions(ctx, &a.source, err)
				break
			}
			for _, m := range page {
				m.known = a.done
			}
			s.registry.distribute(a, page, upTo)
			more = further
		}
	}
}

func (rt *registry) distribute(a *audience, page []*message, upTo uint64) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for sub := range a.subs {
		if len(page) > 0 {
			sub.client.enqueue(sub, page...)
		}
	}
	a.done = max(a.done, upTo)
}

// failSubscriptions disconnects all subscribers of a source after an error. Clients reconnect and get the changes that
// they missed.
func (s *Realtime) failSubscriptions(ctx context.Context, from *source, err error) {
	if ctx.Err() != nil {
		return
	}
	if !errors.As(err, new(query.Invalid)) { // a slow filter is the client's error: do not log it
		s.API.Logger.Error("follow changes", "err", err)
	}
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	for sub := range from.subs {
		sub.client.fail(err)
	}
}

// changesPerPage is the number of records that are read at once.
const changesPerPage = 100

// changes returns a page of the changes of a topic after since, in order, only of ids unless ids is nil. The page is
// complete up to upTo; more reports whether there are later changes.
func (s *Realtime) changes(ctx context.Context, t topic, ids []string,
	since uint64) (page []*message, upTo uint64, more bool, err error) {
	err = s.API.SlowView(ctx, t.slotKey, func(db dbx.Builder, seq uint64) error {
		var found []query.Change
		found, more, err = s.readChanges(ctx, db, t, ids, since)
		if upTo = seq; more {
			upTo = uint64(found[len(found)-1].Last)
		}
		for _, c := range found { // in a query slot of the account, so that few pages are built at once
			m := &message{record: c.AppendJSON(nil), first: uint64(c.First), last: uint64(c.Last), removed: c.Removed}
			page = append(page, m)
		}
		return err
	})
	return page, upTo, more, err
}

// readChanges reads a page with all changes of its events. If the page has more bytes than a list may have, it is read
// again with fewer records. If that does not help, the records come without what they expand to: PocketBase sends a
// record that it cannot expand so, too. A record that is too large by itself is read all the same.
func (s *Realtime) readChanges(
	ctx context.Context, db dbx.Builder, t topic, ids []string, since uint64,
) (found []query.Change, more bool, err error) {
	limit, smallest, wanted := changesPerPage, 2, t.includes()
	for {
		found, err = query.Changed(
			ctx, db, s.API.Catalogue, t.collection, t.request, t.rule(), wanted, ids, int64(since), limit)
		switch large := query.TooLarge(err); {
		case large && limit > smallest:
			limit = max(limit/10, smallest)
			continue
		case large && wanted.Expand != "":
			wanted.Expand = ""
			continue
		case large:
			wanted.Large = true
			continue
		case err != nil || len(found) < limit:
			return found, false, err
		}
		// The last event's changes may not all be among them.
		last := len(found) - 1
		for found[last].Last == found[len(found)-1].Last && last > 0 {
			last--
		}
		if found[last].Last < found[len(found)-1].Last {
			return found[:last+1], true, nil
		}
		limit *= 2
		smallest = limit
	}
}
