package realtime

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections"
	"pocketcoder/web/query"
	"pocketcoder/web/query/filter"
)

// What a hub asks of the read models.

// wakeHubs tells the hubs which messages of their chats changed.
func (s *Realtime) wakeHubs(ctx context.Context, changes []projections.Change, seq uint64) {
	chats, err := s.changedChats(ctx, changes)
	rt := &s.registry
	rt.mu.Lock()
	hubs := maps.Clone(rt.hubs)
	for chat, rows := range chats {
		if h := hubs[chat]; h != nil {
			for _, id := range rows {
				h.rows[id] = true
			}
			h.told = seq
			wake(h.news)
		}
	}
	rt.mu.Unlock()
	for _, h := range hubs {
		if err != nil {
			s.dismiss(ctx, &h.source, err)
		}
	}
}

// changedChats gives the chats that changed, each with those of its messages that did. Nobody asks while there is no hub.
func (s *Realtime) changedChats(ctx context.Context, changes []projections.Change) (map[string][]string, error) {
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

// messages gives the newest changes of messages after since, at most so many, as far as they are among ids and of the chat.
func (s *Realtime) messages(ctx context.Context, chat string, ids []string, since uint64, limit int, fields string) (rows []row, err error) {
	t := topic{request: filter.Request{Superuser: true}, query: map[string]string{"fields": fields}}
	t.collection, _ = s.API.Catalogue.Get("messages")
	if chat != "" {
		t.query["filter"] = ofChat(chat)
	}
	for more := true; more; {
		var page []*message
		if page, since, more, err = s.changes(ctx, t, ids, since); err != nil {
			return nil, err
		}
		for _, m := range page {
			r := row{first: m.first, last: m.last, removed: m.removed}
			if err := json.Unmarshal(m.record, &r); err != nil {
				return nil, err
			}
			rows = append(rows, r)
		}
		rows = rows[max(0, len(rows)-limit):]
	}
	return rows, nil
}

// maxStory is how many messages that ended meanwhile somebody is told of who was away.
const maxStory = 100

// look finds out what changed, and tells the story so far to those who have come.
func (s *Realtime) look(ctx context.Context, h *hub) error {
	ids, told, come, since := s.registry.noted(h)
	for id := range h.talk.wanted {
		ids[id] = true
	}
	clear(h.talk.wanted)
	turn, err := s.lookAtChat(ctx, h, told, come)
	if err != nil {
		return err
	}
	later := false
	if len(ids) > 0 {
		rows, err := s.messages(ctx, h.chat, slices.Collect(maps.Keys(ids)), 0, len(ids), "")
		if err != nil {
			return err
		}
		later = h.talk.learn(rows, told)
	}
	var missed []row
	if len(come) > 0 {
		if missed, err = s.messages(ctx, h.chat, nil, since, maxStory, ""); err != nil {
			return err
		}
		later = h.talk.learn(missed, told) || later
	}
	if !later {
		h.talk.settle(turn, told)
	}
	s.registry.say(h, h.talk.rest())
	s.registry.tellStory(h, told, come, missed)
	return nil
}

// noted gives the records that changed, up to where, who has come since, and from where they want to know.
func (rt *registry) noted(h *hub) (ids map[string]bool, told uint64, come []*subscription, since uint64) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	ids, told, since = h.rows, h.told, math.MaxUint64
	h.rows = map[string]bool{}
	for sub := range h.subs {
		if !sub.joined {
			come, since = append(come, sub), min(since, sub.from)
		}
	}
	return ids, told, come, since
}

// lookAtChat gives whose turn it is as of told, empty when the chat changed after that, and stops telling those who may not
// see the chat any more.
func (s *Realtime) lookAtChat(ctx context.Context, h *hub, told uint64, come []*subscription) (turn string, err error) {
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
		check = s.registry.followers(h)
	}
	for _, sub := range check {
		allowed := false
		err := s.API.Ask(ctx, "", func(db dbx.Builder, _ uint64) (err error) {
			allowed, err = query.Allowed(ctx, db, s.API.Catalogue, t.collection, h.chat, t.collection.View, sub.topic.request)
			return err
		})
		if err != nil {
			return "", err
		}
		if !allowed {
			s.registry.exclude(sub)
		}
	}
	if page[0].last > told {
		return "", nil
	}
	return chat.Turn, nil
}

func (rt *registry) followers(h *hub) []*subscription {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return slices.Collect(maps.Keys(h.subs))
}

// exclude makes a subscription silent.
func (rt *registry) exclude(sub *subscription) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.leave(sub)
	sub.source = nil
}

// tellStory tells those who have come what they missed and what is being said. From then on they hear what the others do.
func (rt *registry) tellStory(h *hub, told uint64, come []*subscription, missed []row) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for _, sub := range come {
		if !h.subs[sub] {
			continue
		}
		sub.client.put(sub, h.talk.story(sub.from, told, missed)...)
		sub.joined = true
		sub.client.mu.Lock()
		sub.behind = false
		sub.client.mu.Unlock()
	}
	h.done = max(h.done, told)
}
