// Package outgoing is the read model of the messages that are sent through channels, and of the events that webhook
// targets did not accept.
//
// Promises: a message is open until an event says how it ended. A message whose sending began and did not end is in the
// state sending. A new process therefore knows that the platform may have received it.
//
// It must not know how a message is sent.
package outgoing

import (
	"pocketcoder/events"
	"pocketcoder/projections/store"
)

type Message struct {
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

// States of a message.
const (
	Queued  = "queued"
	Sending = "sending"
	Sent    = "sent"
	Failed  = "failed"
	Unknown = "unknown" // the platform may have it
)

// Update applies an event of a chat.
func Update(t *store.Table[Message], e events.Event, body any) {
	switch b := body.(type) {
	case events.ChannelQueued:
		m, found := t.Get(b.Message)
		if found {
			return // the event was appended twice
		}
		m.Chat, m.Channel, m.Place, m.Type, m.Text = e.Subject.ID, b.Channel, b.Place, b.Type, b.Text
		m.About, m.Whole, m.State, m.Position = b.About, b.Whole, Queued, int64(e.Seq)
		t.Put(m)
	case events.ChannelSending:
		change(t, e, b.Message, func(m *Message) { m.State = Sending })
	case events.ChannelDelayed:
		change(t, e, b.Message, func(m *Message) { m.State, m.Reason, m.Attempts = Queued, b.Reason, int64(b.Attempts) })
	case events.ChannelSent:
		change(t, e, b.Message, func(m *Message) {
			m.State, m.Receipt, m.Reason, m.Attempts = Sent, b.Receipt, "", int64(b.Attempts)
		})
	case events.ChannelFailed:
		change(t, e, b.Message, func(m *Message) {
			m.State, m.Reason, m.Attempts = Failed, b.Reason, int64(b.Attempts)
			if b.Unknown {
				m.State = Unknown
			}
		})
	}
}

// change changes an open message of the event's chat.
func change(t *store.Table[Message], e events.Event, id string, apply func(*Message)) {
	m, found := t.Get(id)
	if found && m.Chat == e.Subject.ID && (m.State == Queued || m.State == Sending) {
		apply(&m)
		t.Put(m)
	}
}
