package records

import (
	"context"
	"encoding/json"

	"pocketcoder/handlers/chat"
	"pocketcoder/projections"
	"pocketcoder/web/api"
)

// createSeenPosition records up to which event the caller has seen a chat. It also updates an existing position. The
// id follows from the account and the chat.
func createSeenPosition(s *Records, ctx context.Context, w change) (string, uint64, error) {
	chatID, _ := w.text("chat")
	id := projections.SeenPositionID(w.caller.Account, chatID)
	if w.id != "" && w.id != id {
		return "", 0, api.BadField("id", "validation_invalid_value",
			"The id follows from the account and the chat: it is %s.", id)
	}
	seq, err := s.markSeen(ctx, w, chatID)
	return id, seq, err
}

// updateSeenPosition moves a position forward. It ignores a position before the known one.
func updateSeenPosition(s *Records, ctx context.Context, w change) (string, uint64, error) {
	for name := range w.changed() {
		if name != "seq" {
			return "", 0, api.BadField(name, "validation_conflict", "Only the position changes.")
		}
	}
	if _, given := w.set["seq"]; !given {
		return w.id, 0, nil
	}
	seq, err := s.markSeen(ctx, w, w.oldText("chat"))
	return w.id, seq, err
}

func (s *Records) markSeen(ctx context.Context, w change, chatID string) (uint64, error) {
	c := chat.MarkSeen{Command: w.Command, User: w.caller.Account, Chat: chatID}
	if err := json.Unmarshal(w.set["seq"], &c.Seq); err != nil {
		return 0, api.BadField("seq", "validation_invalid_type", "want the sequence of an event")
	}
	return s.Chats.MarkSeen(ctx, c)
}
