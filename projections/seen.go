package projections

import (
	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// SeenPosition is up to where an account has seen a chat.
type SeenPosition struct {
	store.Record
	User string `db:"user" json:"user"`
	Chat string `db:"chat" json:"chat"`
	Seq  int64  `db:"seq" json:"seq"` // of the last event that it has seen
}

// SeenPositionID returns the id of the row of an account and a chat.
func SeenPositionID(user, chat string) string { return store.RecordID(user + "/" + chat) }

func updateSeenPositions(t *tables, e events.Event, body any) error {
	if b, ok := body.(events.ChatSeen); ok {
		p, _ := t.seenPositions.Get(SeenPositionID(e.Subject.ID, b.Chat))
		p.User, p.Chat, p.Seq = e.Subject.ID, b.Chat, max(p.Seq, int64(b.Seq))
		t.seenPositions.Put(p)
	}
	return nil
}
