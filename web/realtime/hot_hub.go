package realtime

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections/store"
	"pocketcoder/web/query"
	"pocketcoder/web/query/filter"
	"pocketcoder/web/realtime/transcript"
)

// wakeHubs passes the messages that changed to the hubs of their chats.
func (s *Realtime) wakeHubs(ctx context.Context, changes []store.Change, seq uint64) {
	chats, err := s.changedChats(ctx, changes)
	rt := &s.registry
	rt.mu.Lock()
	hubs := maps.Clone(rt.hubs)
	for chat, rows := range chats {
		if h := hubs[chat]; h != nil {
			for _, id := range rows {
				h.rows[id] = true
			}
			h.upTo = seq
			wake(h.wake)
		}
	}
	rt.mu.Unlock()
	for _, h := range hubs {
		if err != nil {
			s.failSubscriptions(ctx, &h.source, err)
		}
	}
}

// changedChats returns the chats that changed, each with the messages that changed. It reads nothing while there is
// no hub.
func (s *Realtime) changedChats(ctx context.Context, changes []store.Change) (map[string][]string, error) {
	chats, ids := map[string][]string{}, []string{}
	for _, c := range changes {
		switch c.Table {
		case "chats":
			chats[c.ID] = nil
		case "messages":
			ids = append(ids, c.ID)
		}
	}
	s.registry.mu.Lock()
	idle := len(s.registry.hubs) == 0
	s.registry.mu.Unlock()
	if idle || len(ids) == 0 {
		return chats, nil
	}
	rows, err := s.messages(ctx, "", ids, 0, len(ids), "id,chat")
	for _, r := range rows {
		chats[r.Chat] = append(chats[r.Chat], r.ID)
	}
	return chats, err
}

// messages returns the newest changes of messages after since: at most limit, only of the chat, and only of ids
// unless ids is nil.
func (s *Realtime) messages(ctx context.Context, chat string, ids []string, since uint64, limit int,
	fields string) (rows []transcript.Record, err error) {
	t := topic{request: filter.Request{Superuser: true}, query: map[string]string{"fields": fields}}
	t.collection, _ = s.API.Catalogue.Get("messages")
	if chat != "" {
		t.query["filter"] = chatFilter(chat)
	}
	for more := true; more; {
		var page []*message
		if page, since, more, err = s.changes(ctx, t, ids, since); err != nil {
			return nil, err
		}
		for _, m := range page {
			r := transcript.Record{First: m.first, Last: m.last, Removed: m.removed}
			if err := json.Unmarshal(m.record, &r); err != nil {
				return nil, err
			}
			rows = append(rows, r)
		}
		rows = rows[max(0, len(rows)-limit):]
	}
	return rows, nil
}

// maxMissed is the largest number of messages that ended while a subscriber was away and that the subscriber gets.
const maxMissed = 100

// refreshHub reads what changed, sends it, and brings new subscribers up to date.
func (s *Realtime) refreshHub(ctx context.Context, h *hub) error {
	ids, upTo, come, since := s.registry.takeChanges(h)
	for id := range h.transcript.Unknown {
		ids[id] = true
	}
	clear(h.transcript.Unknown)
	turn, err := s.checkChat(ctx, h, upTo, come)
	if err != nil {
		return err
	}
	later := false
	if len(ids) > 0 {
		rows, err := s.messages(ctx, h.chat, slices.Collect(maps.Keys(ids)), 0, len(ids), "")
		if err != nil {
			return err
		}
		later = h.transcript.AddRecords(rows, upTo)
	}
	var missed []transcript.Record
	if len(come) > 0 {
		if missed, err = s.messages(ctx, h.chat, nil, since, maxMissed, ""); err != nil {
			return err
		}
		later = h.transcript.AddRecords(missed, upTo) || later
	}
	s.registry.send(h, h.transcript.Flush())
	s.registry.sendMissed(h, upTo, come, missed)
	if !later { // after new subscribers have joined, because no record contains it
		h.transcript.EndTurn(turn, upTo)
		s.registry.send(h, h.transcript.Flush())
	}
	return nil
}

// takeChanges returns the records that changed and the sequence up to which, the new subscribers, and the earliest
// sequence that one of them needs.
func (rt *registry) takeChanges(h *hub) (ids map[string]bool, upTo uint64, come []*subscription, since uint64) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	ids, upTo, since = h.rows, h.upTo, math.MaxUint64
	h.rows = map[string]bool{}
	for sub := range h.subs {
		if !sub.joined {
			come, since = append(come, sub), min(since, sub.from)
		}
	}
	return ids, upTo, come, since
}

// checkChat returns the chat's turn as of upTo, or "" if the chat changed later. It ends the subscriptions of
// accounts that may no longer see the chat.
func (s *Realtime) checkChat(ctx context.Context, h *hub, upTo uint64, come []*subscription) (turn string, err error) {
	t := topic{request: filter.Request{Superuser: true}, id: h.chat}
	t.collection, _ = s.API.Catalogue.Get("chats")
	page, _, _, err := s.changes(ctx, t, []string{h.chat}, 0)
	if err != nil || len(page) == 0 {
		return "", err
	}
	var chat struct{ User, Turn string }
	if err := json.Unmarshal(page[0].record, &chat); err != nil {
		return "", err
	}
	check := come
	if chat.User != h.owner || page[0].removed {
		h.owner = chat.User
		check = s.registry.subscriptions(h)
	}
	for _, sub := range check {
		allowed := false
		err := s.API.SlowView(ctx, "", func(db dbx.Builder, _ uint64) (err error) {
			allowed, err = query.Allowed(ctx, db, s.API.Catalogue, t.collection, h.chat, t.collection.View, sub.topic.request)
			return err
		})
		if err != nil {
			return "", err
		}
		if !allowed {
			s.registry.mute(sub)
		}
	}
	if page[0].last > upTo {
		return "", nil
	}
	return chat.Turn, nil
}

func (rt *registry) subscriptions(h *hub) []*subscription {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return slices.Collect(maps.Keys(h.subs))
}

// mute stops the events of a subscription without removing it.
func (rt *registry) mute(sub *subscription) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.leave(sub)
	sub.source = nil
}

// sendMissed queues missed events and snapshots for new subscribers. From then on they get the same events as all
// others.
func (rt *registry) sendMissed(h *hub, upTo uint64, come []*subscription, missed []transcript.Record) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for _, sub := range come {
		if !h.subs[sub] {
			continue
		}
		sub.client.enqueue(sub, messagesOf(h.transcript.CatchUp(sub.from, upTo, missed))...)
		sub.joined = true
		sub.client.mu.Lock()
		sub.catchUp = false
		sub.client.mu.Unlock()
	}
	h.done = max(h.done, upTo)
}
