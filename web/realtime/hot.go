package realtime

import (
	"context"
	"time"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/web/query"
	"pocketcoder/web/query/filter"
	"pocketcoder/web/realtime/transcript"
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
// One hub serves all subscribers of a chat. It reads text deltas from DELTAS and everything else from the read models.

// hub is the hot stream of a chat.
type hub struct {
	source
	chat       string
	rows       map[string]bool       // records of messages that changed; guarded by registry.mu
	upTo       uint64                // changes up to this sequence are in rows; guarded by registry.mu
	owner      string                // owner of the chat when it was last read; used by the hub's goroutine alone
	transcript transcript.Transcript // used by the hub's goroutine alone
}

// newHub starts a hub. registry.mu must be held.
func (s *Realtime) newHub(ctx context.Context, chat string, now uint64) *hub {
	ctx, end := context.WithCancel(ctx)
	h := &hub{
		source: source{key: chat, subs: map[*subscription]bool{}, done: now, wake: make(chan struct{}, 1), end: end},
		chat:   chat, rows: map[string]bool{}, upTo: now, transcript: transcript.New(now),
	}
	s.registry.hubs[chat] = h
	go func() {
		err := s.runHub(ctx, h)
		s.registry.mu.Lock()
		s.registry.removeSource(&h.source) // a later subscriber starts a new hub
		s.registry.mu.Unlock()
		s.failSubscriptions(ctx, &h.source, err)
	}()
	return h
}

// runHub is the goroutine of a hub. It ends with ctx, which ends with the last subscription.
func (s *Realtime) runHub(ctx context.Context, h *hub) error {
	listening, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	since, err := s.startHub(ctx, h)
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
				err = s.refreshHub(ctx, h)
			}
		case <-h.wake:
			err = s.refreshHub(ctx, h)
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

// startHub reads the unfinished messages and returns the time from which deltas are needed.
func (s *Realtime) startHub(ctx context.Context, h *hub) (since time.Time, err error) {
	since = time.Now()
	messages, _ := s.API.Catalogue.Get("messages")
	err = s.API.SlowView(ctx, "", func(db dbx.Builder, _ uint64) error {
		page, err := query.List(ctx, db, s.API.Catalogue, messages, filter.Request{Superuser: true}, query.Query{
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
func (rt *registry) send(h *hub, all []transcript.Event) {
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

func messagesOf(all []transcript.Event) (messages []*message) {
	for _, e := range all {
		messages = append(messages, &message{last: e.Last, data: e.Data, replaces: e.Replaces})
	}
	return messages
}
