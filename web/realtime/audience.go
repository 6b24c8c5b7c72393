package realtime

import (
	"context"
	"errors"

	"github.com/pocketbase/dbx"

	"pocketcoder/web/query"
	"pocketcoder/web/query/schema"
)

// audience is all who follow the same topic as the same account: what they get is asked for once.
type audience struct {
	source
	topic topic
	group string // of rows whose changes concern it
}

// newAudience begins one that hears of what changes after now. registry.mu is held.
func (s *Realtime) newAudience(ctx context.Context, key string, t topic, now uint64) *audience {
	ctx, end := context.WithCancel(ctx)
	a := &audience{source: source{key: key, subs: map[*subscription]bool{}, done: now, news: make(chan struct{}, 1), end: end}, topic: t, group: group(t.collection)}
	s.registry.audiences[key] = a
	go s.inform(ctx, a)
	return a
}

// inform hands the changes of an audience to its subscriptions until it has none.
func (s *Realtime) inform(ctx context.Context, a *audience) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.news:
		}
		for more := true; more; {
			page, upTo, further, err := s.changes(ctx, a.topic, a.topic.ids(), a.done)
			if err != nil {
				s.dismiss(ctx, &a.source, err)
				break
			}
			for _, m := range page {
				m.known = a.done
			}
			s.registry.tell(a, page, upTo)
			more = further
		}
	}
}

func (rt *registry) tell(a *audience, page []*message, upTo uint64) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for sub := range a.subs {
		if len(page) > 0 {
			sub.client.put(sub, page...)
		}
	}
	a.done = max(a.done, upTo)
}

// dismiss ends the connections of those who cannot be told what happens: they come again, and lose nothing.
func (s *Realtime) dismiss(ctx context.Context, from *source, err error) {
	if ctx.Err() != nil {
		return
	}
	if !errors.As(err, new(schema.Invalid)) { // a filter that takes too long is not our fault
		s.API.Logger.Error("follow changes", "err", err)
	}
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	for sub := range from.subs {
		sub.client.fail(err)
	}
}

// pageOfChanges is how many records are asked for at once.
const pageOfChanges = 100

// changes asks what changed of a topic after since, of ids alone unless they are nil: the first of it in the order of
// change, up to where that is all there was, and whether there is more.
func (s *Realtime) changes(ctx context.Context, t topic, ids []string, since uint64) (page []*message, upTo uint64, more bool, err error) {
	var found []query.Change
	err = s.API.Ask(ctx, t.holder, func(db dbx.Builder, seq uint64) error {
		for limit := pageOfChanges; ; limit *= 2 {
			found, err = query.Changed(ctx, db, s.API.Catalogue, t.collection, t.request, t.rule(), t.wants(), ids, int64(since), limit)
			if err != nil {
				return err
			}
			if upTo, more = seq, len(found) == limit; !more {
				return nil
			}
			// The last event's changes may not all be among them.
			last := len(found) - 1
			for found[last].Last == found[len(found)-1].Last && last > 0 {
				last--
			}
			if found[last].Last < found[len(found)-1].Last {
				found, upTo = found[:last+1], uint64(found[last].Last)
				return nil
			}
		}
	})
	for _, c := range found {
		page = append(page, &message{record: c.AppendJSON(nil), first: uint64(c.First), last: uint64(c.Last), removed: c.Removed})
	}
	return page, upTo, more, err
}
