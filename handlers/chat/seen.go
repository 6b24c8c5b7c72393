package chat

import (
	"context"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// MarkSeen records that an account has seen a chat up to an event.
type MarkSeen struct {
	handlers.Command
	User string `json:"user"`
	Chat string `json:"chat"`
	Seq  uint64 `json:"seq"`
}

// seenState holds up to where an account has seen its chats, by chat.
type seenState map[string]struct{ seq, event uint64 }

func (s seenState) Apply(e events.Event) {
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	if seen, ok := d.(events.ChatSeen); ok && seen.Seq > s[seen.Chat].seq {
		s[seen.Chat] = struct{ seq, event uint64 }{seen.Seq, e.Seq}
	}
}

// MarkSeen ignores a position before the known one, because two devices may report out of order.
func (h *Chats) MarkSeen(ctx context.Context, c MarkSeen) (uint64, error) {
	if err := handlers.CheckChat(c.Chat); err != nil {
		return 0, err
	}
	last, err := h.Log.Last(ctx)
	if err != nil {
		return 0, err
	}
	if c.Seq > last {
		return 0, handlers.RefuseField(handlers.Invalid, "seq", "seq: the log ends at event %d, got %d", last, c.Seq)
	}
	if err := h.chat(ctx, c.Chat).Read(ctx, h.Log, func(s *chatState) error { return s.Missing(c.Chat) }); err != nil {
		return 0, err
	}
	f := h.seen.Get(ctx, c.User, func() *handlers.Fold[seenState] {
		return handlers.NewFold(seenState{}, events.UserSubject(c.User, events.ChatSeen{}.Kind()))
	})
	return f.Execute(ctx, h.Log, c.Command, func(s seenState) ([]events.Event, uint64, error) {
		if known := s[c.Chat]; c.Seq <= known.seq {
			return nil, known.event, nil
		}
		e, err := events.NewUser(c.User, c.Actor, events.ChatSeen{Chat: c.Chat, Seq: c.Seq})
		return []events.Event{e}, 0, err
	})
}
