package realtime

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/project"
	"pocketcoder/projections/store"
	"pocketcoder/web/query"
	"pocketcoder/web/records"
)

// The hot stream of a chat has the topic chats:<id>. It shows messages of the chat's own session while the assistant
// writes them. Each event is {"event":…,"data":…}:
//
//	text_delta        {messageID, partID, text}          text that was appended, in order
//	tool_status       {messageID, partID, tool, status}
//	message_snapshot  {messageID, role, parts}           a message so far, with its whole text
//	message_complete  {messageID, parts, status, role}   completed or aborted
//	message_error     {messageID, error: {message}}
//
// messageID is OpenCode's. One of the last two events ends every message, after its record says so. One also ends a
// user's message without an answer, and a turn without any message. A new subscriber first gets the messages that
// ended since its session's last connection, and a snapshot of each unfinished message. A snapshot replaces an earlier
// one that is still in the queue of a client.
//
// One liveChat serves all subscribers of a chat. It reads text deltas from DELTAS and everything else from the read
// models.

// liveChat is the hot stream of a chat.
type liveChat struct {
	source
	chat       string
	rows       map[string]bool // records of messages that changed; guarded by registry.mu
	upTo       uint64          // changes up to this sequence are in rows; guarded by registry.mu
	recheck    bool            // projects or members have changed; guarded by registry.mu
	access     chatAccess      // of the chat when it was last read; used by the live chat's goroutine alone
	transcript transcript      // used by the live chat's goroutine alone
}

// chatAccess says which accounts may see a chat.
type chatAccess struct {
	User   string
	Shared bool
}

// newLiveChat starts a live chat. registry.mu must be held.
func (s *Realtime) newLiveChat(ctx context.Context, chat string, now uint64) *liveChat {
	ctx, end := context.WithCancel(ctx)
	h := &liveChat{
		source: source{key: chat, subs: map[*subscription]bool{}, done: now, wake: make(chan struct{}, 1), end: end},
		chat:   chat, rows: map[string]bool{}, upTo: now, transcript: newTranscript(now),
	}
	s.registry.liveChats[chat] = h
	go func() {
		err := s.runLiveChat(ctx, h)
		s.registry.mu.Lock()
		s.registry.removeSource(&h.source) // a later subscriber starts a new live chat
		s.registry.mu.Unlock()
		s.failSubscriptions(ctx, &h.source, err)
	}()
	return h
}

// runLiveChat is the goroutine of a live chat. It ends with ctx, which ends with the last subscription.
func (s *Realtime) runLiveChat(ctx context.Context, h *liveChat) error {
	listening, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	since, err := s.startLiveChat(ctx, h)
	if err != nil {
		return err
	}
	fragments := make(chan log.Delta, 256)
	go func() {
		cancel(s.Log.ReadDeltas(listening, since, events.ChatDeltaFilters(h.chat)[:1], func(d log.Delta) {
			select {
			case fragments <- d:
			case <-listening.Done():
			}
		}))
	}()
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		select {
		case <-listening.Done():
			return context.Cause(listening)
		case d := <-fragments:
			h.transcript.AddDelta(d)
			for range len(fragments) {
				h.transcript.AddDelta(<-fragments)
			}
			if len(h.transcript.Unknown) > 0 {
				err = s.refreshLiveChat(ctx, h)
			}
		case <-h.wake:
			err = s.refreshLiveChat(ctx, h)
		case <-due.C:
		}
		if err != nil {
			return err
		}
		all, next := h.transcript.Due(time.Now())
		s.registry.send(h, all)
		due.Reset(next)
	}
}

// clockSkew is how much older than the record of its message a delta may be, because the clocks of two machines
// differ.
const clockSkew = 10 * time.Second

// startLiveChat reads the unfinished messages and returns the time from which deltas are needed.
func (s *Realtime) startLiveChat(ctx context.Context, h *liveChat) (since time.Time, err error) {
	since = time.Now()
	messages, _ := s.API.Catalogue.Get("messages")
	err = s.API.SlowView(ctx, "", func(db dbx.Builder, _ uint64) error {
		page, err := query.List(ctx, db, s.API.Catalogue, messages, query.Request{Superuser: true}, query.Query{
			Filter: chatFilter(h.chat) + ` && engine_message_status = "processing"`, Sort: "created", Fields: "id,created", SkipTotal: true,
		})
		for _, r := range page.Items {
			h.transcript.Unknown[r.ID()] = true
			if created, err := time.Parse(events.TimeFormat, r.Text("created")); err == nil && created.Before(since) {
				since = created
			}
		}
		return err
	})
	return since.Add(-clockSkew), err
}

// chatFilter is the filter for the messages of a chat. A chat id cannot contain quotes.
func chatFilter(id string) string { return `chat = "` + id + `"` }

// send queues events for the subscribers that have their snapshots.
func (rt *registry) send(h *liveChat, all []liveEvent) {
	if len(all) == 0 {
		return
	}
	messages := messagesOf(all)
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for sub := range h.subs {
		if sub.joined {
			sub.client.enqueue(sub, messages...)
		}
	}
}

func messagesOf(all []liveEvent) (messages []*message) {
	for _, e := range all {
		messages = append(messages, &message{last: e.Last, data: e.Data, replaces: e.Replaces})
	}
	return messages
}

// wakeHubs passes the messages that changed to the liveChats of their chats.
func (s *Realtime) wakeHubs(ctx context.Context, changes []store.Change, seq uint64) {
	chats, err := s.changedChats(ctx, changes)
	access := slices.ContainsFunc(changes, func(c store.Change) bool {
		group, _ := groupOfChange(c)
		return group == records.ConfigTable+"/"+project.Collection || group == records.ConfigTable+"/"+project.Members
	})
	rt := &s.registry
	rt.mu.Lock()
	liveChats := maps.Clone(rt.liveChats)
	for _, h := range liveChats {
		if access {
			h.recheck, h.upTo = true, seq
			wake(h.wake)
		}
	}
	for chat, rows := range chats {
		if h := liveChats[chat]; h != nil {
			for _, id := range rows {
				h.rows[id] = true
			}
			h.upTo = seq
			wake(h.wake)
		}
	}
	rt.mu.Unlock()
	for _, h := range liveChats {
		if err != nil {
			s.failSubscriptions(ctx, &h.source, err)
		}
	}
}

// changedChats returns the chats that changed, each with the messages that changed. It reads nothing while there is
// no live chat.
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
	idle := len(s.registry.liveChats) == 0
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
	fields string) (rows []liveRecord, err error) {
	t := topic{request: query.Request{Superuser: true}, query: map[string]string{"fields": fields}}
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
			r := liveRecord{First: m.first, Last: m.last, Removed: m.removed}
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

// refreshLiveChat reads what changed, sends it, and brings new subscribers up to date.
func (s *Realtime) refreshLiveChat(ctx context.Context, h *liveChat) error {
	ids, upTo, come, since, recheck := s.registry.takeChanges(h)
	for id := range h.transcript.Unknown {
		ids[id] = true
	}
	clear(h.transcript.Unknown)
	turn, err := s.checkChat(ctx, h, upTo, come, recheck)
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
	var missed []liveRecord
	if len(come) > 0 {
		if missed, err = s.messages(ctx, h.chat, nil, since, maxMissed, ""); err != nil {
			return err
		}
		later = h.transcript.AddRecords(missed, upTo) || later
	}
	s.registry.send(h, h.transcript.Flush())
	s.registry.sendMissed(h, upTo, come, missed)
	if len(come) > 0 && s.Opened != nil && len(s.registry.subscriptions(h)) > 0 {
		go s.Opened(ctx, h.chat)
	}
	if !later { // after new subscribers have joined, because no record contains it
		h.transcript.EndTurn(turn, upTo)
		s.registry.send(h, h.transcript.Flush())
	}
	return nil
}

// takeChanges returns the records that changed and the sequence up to which, the new subscribers, the earliest sequence
// that one of them needs, and whether all subscribers must be checked.
func (rt *registry) takeChanges(h *liveChat) (ids map[string]bool, upTo uint64, come []*subscription, since uint64,
	recheck bool) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	ids, upTo, since, recheck = h.rows, h.upTo, math.MaxUint64, h.recheck
	h.rows, h.recheck = map[string]bool{}, false
	for sub := range h.subs {
		if !sub.joined {
			come, since = append(come, sub), min(since, sub.from)
		}
	}
	return ids, upTo, come, since, recheck
}

// checkChat returns the chat's turn as of upTo, or "" if the chat changed later. It ends the subscriptions of
// accounts that may no longer see the chat.
func (s *Realtime) checkChat(ctx context.Context, h *liveChat, upTo uint64, come []*subscription, recheck bool) (
	turn string, err error) {
	t := topic{request: query.Request{Superuser: true}, id: h.chat}
	t.collection, _ = s.API.Catalogue.Get("chats")
	page, _, _, err := s.changes(ctx, t, []string{h.chat}, 0)
	if err != nil || len(page) == 0 {
		return "", err
	}
	var chat struct {
		chatAccess
		Turn string
	}
	if err := json.Unmarshal(page[0].record, &chat); err != nil {
		return "", err
	}
	check := come
	if chat.chatAccess != h.access || page[0].removed || recheck {
		h.access = chat.chatAccess
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

func (rt *registry) subscriptions(h *liveChat) []*subscription {
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
func (rt *registry) sendMissed(h *liveChat, upTo uint64, come []*subscription, missed []liveRecord) {
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
