package realtime

import (
	"context"
	"time"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/projections"
	"pocketcoder/web/query"
	"pocketcoder/web/query/filter"
)

// The hot stream of a chat, the topic chats:<id>, is what is being said in its own session before it is a fact. Each event
// is {"event":…,"data":…}:
//
//	text_delta        {messageID, partID, text}          what a text grew by, in order
//	tool_status       {messageID, partID, tool, status}
//	message_snapshot  {messageID, role, parts}           a message so far, its text whole
//	message_complete  {messageID, parts, status, role}   completed or aborted
//	message_error     {messageID, error: {message}}
//
// messageID is OpenCode's. Every message that ends has one of the last two, once, after its record says so; so has a
// person's message that nothing answers, and a turn that ends without any of these. Whoever follows anew first hears what
// ended since the last connection of the session, and what is being said so far. A message that is not sent yet when the
// next snapshot of it comes is left out.
//
// A hub knows one chat for all who follow it: the fragments from DELTAS, the rest from the read models.

// hub is the hot stream of a chat.
type hub struct {
	source
	chat  string
	rows  map[string]bool // records of messages that changed; guarded by registry.mu
	told  uint64          // changes up to here are in rows; guarded by registry.mu
	owner string          // of the chat, as its goroutine has seen it
	talk  talk            // of its goroutine
}

// newHub begins one. registry.mu is held.
func (s *Realtime) newHub(ctx context.Context, chat string, now uint64) *hub {
	ctx, end := context.WithCancel(ctx)
	h := &hub{
		source: source{key: chat, subs: map[*subscription]bool{}, done: now, news: make(chan struct{}, 1), end: end},
		chat:   chat, rows: map[string]bool{}, told: now, talk: newTalk(now),
	}
	s.registry.hubs[chat] = h
	go func() {
		err := s.listen(ctx, h)
		s.registry.mu.Lock()
		s.registry.forgetSource(&h.source) // who comes from now on gets another
		s.registry.mu.Unlock()
		s.dismiss(ctx, &h.source, err)
	}()
	return h
}

// listen is the hub's goroutine: it ends with ctx, when nobody follows the chat any more.
func (s *Realtime) listen(ctx context.Context, h *hub) error {
	listening, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	since, err := s.begin(ctx, h)
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
			h.talk.hear(d)
			for range len(fragments) {
				h.talk.hear(<-fragments)
			}
			if len(h.talk.wanted) > 0 {
				err = s.look(ctx, h)
			}
		case <-h.news:
			err = s.look(ctx, h)
		case <-due.C:
		}
		if err != nil {
			return err
		}
		said, next := h.talk.say(time.Now())
		s.registry.say(h, said)
		due.Reset(next)
	}
}

// earlier is how much older than its message's record a fragment may be, by the clocks of two machines.
const earlier = 10 * time.Second

// begin notes the messages that are being written, and gives the time since when fragments matter.
func (s *Realtime) begin(ctx context.Context, h *hub) (since time.Time, err error) {
	since = time.Now()
	messages, _ := s.API.Catalogue.Get("messages")
	err = s.API.Ask(ctx, "", func(db dbx.Builder, _ uint64) error {
		page, err := query.List(ctx, db, s.API.Catalogue, messages, filter.Request{Superuser: true}, query.Query{
			Filter: ofChat(h.chat) + ` && engine_message_status = "processing"`, Sort: "created", Fields: "id,created", SkipTotal: true,
		})
		for _, r := range page.Items {
			h.talk.wanted[r.ID()] = true
			text, _ := r.Get("created").(string)
			if created, err := time.Parse(projections.TimeFormat, text); err == nil && created.Before(since) {
				since = created
			}
		}
		return err
	})
	return since.Add(-earlier), err
}

// ofChat is the filter of a chat's messages. The id holds nothing that ends a text.
func ofChat(id string) string { return `chat = "` + id + `"` }

// say tells those who have heard the story so far.
func (rt *registry) say(h *hub, said []*message) {
	if len(said) == 0 {
		return
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for sub := range h.subs {
		if sub.joined {
			sub.client.put(sub, said...)
		}
	}
}
