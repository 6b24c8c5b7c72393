package projections

import (
	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// ChannelMessage is an outgoing message of a channel. It is open until an event says how it ended. A message whose
// sending began and did not end is in the state ChannelMessageSending. A new process therefore knows that the platform
// may have received it.
type ChannelMessage struct {
	store.Record
	Chat    string `db:"chat" json:"chat"`
	Channel string `db:"channel" json:"channel"` // record of the collection channels
	Place   string `db:"place" json:"place"`     // the platform's id of the conversation
	Type    string `db:"type" json:"type"`       // answer, error, permission, question, file, notice
	Text    string `db:"text" json:"text"`       // of a file its caption
	// id of the message, request, question or file; "notice/" and a message id; empty for a direct notice
	About    string `db:"about" json:"about"`
	Whole    bool   `db:"whole" json:"whole"` // permission: the text shows all that an approval would allow
	State    string `db:"state" json:"state"`
	Receipt  string `db:"receipt" json:"receipt"` // the platform's id of the message
	Reason   string `db:"reason" json:"reason"`   // why it failed
	Attempts int64  `db:"attempts" json:"attempts"`
	Position int64  `db:"position" json:"position"`
}

// States of a ChannelMessage.
const (
	channelMessageQueued  = "queued"
	ChannelMessageSending = "sending"
	channelMessageSent    = "sent"
	channelMessageFailed  = "failed"
	channelMessageUnknown = "unknown" // the platform may have it
)

// updateChannelMessages applies an event of a chat.
func updateChannelMessages(t *tables, e events.Event, body any) error {
	switch b := body.(type) {
	case events.ChannelQueued:
		m, found := t.outgoing.Get(b.Message)
		if found {
			return nil // the event was appended twice
		}
		m.Chat, m.Channel, m.Place, m.Type, m.Text = e.Subject.ID, b.Channel, b.Place, b.Type, b.Text
		m.About, m.Whole, m.State, m.Position = b.About, b.Whole, channelMessageQueued, int64(e.Seq)
		t.outgoing.Put(m)
	case events.ChannelSending:
		changeChannelMessage(t.outgoing, e, b.Message, func(m *ChannelMessage) { m.State = ChannelMessageSending })
	case events.ChannelDelayed:
		changeChannelMessage(t.outgoing, e, b.Message, func(m *ChannelMessage) {
			m.State, m.Reason, m.Attempts = channelMessageQueued, b.Reason, int64(b.Attempts)
		})
	case events.ChannelSent:
		changeChannelMessage(t.outgoing, e, b.Message, func(m *ChannelMessage) {
			m.State, m.Receipt, m.Reason, m.Attempts = channelMessageSent, b.Receipt, "", int64(b.Attempts)
		})
	case events.ChannelFailed:
		changeChannelMessage(t.outgoing, e, b.Message, func(m *ChannelMessage) {
			m.State, m.Reason, m.Attempts = channelMessageFailed, b.Reason, int64(b.Attempts)
			if b.Unknown {
				m.State = channelMessageUnknown
			}
		})
	}
	return nil
}

// changeChannelMessage changes an open message of the event's chat.
func changeChannelMessage(t *store.Table[ChannelMessage], e events.Event, id string, apply func(*ChannelMessage)) {
	m, found := t.Get(id)
	if found && m.Chat == e.Subject.ID && (m.State == channelMessageQueued || m.State == ChannelMessageSending) {
		apply(&m)
		t.Put(m)
	}
}
