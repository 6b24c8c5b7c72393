package channel

import (
	"context"

	"pocketcoder/events"
)

// Queue appends an outgoing message, and returns once the read models include it.
func (h *Channels) Queue(ctx context.Context, chat string, d events.ChannelQueued) error {
	return h.record(ctx, chat, d.Message, d)
}

// Record appends an event about an outgoing message: events.ChannelSending, ChannelDelayed, ChannelSent or
// ChannelFailed. It returns once the read models include it.
func (h *Channels) Record(ctx context.Context, chat, message string, d events.Data) error {
	return h.record(ctx, chat, message, d)
}

// record appends an event about an outgoing message. Its id follows from the message and the kind, so a second one is
// dropped by the server or ignored by the read model.
func (h *Channels) record(ctx context.Context, chat, message string, d events.Data) error {
	e, err := events.New(chat, events.ActorSystem, d)
	if err != nil {
		return err
	}
	switch d.(type) {
	case events.ChannelSending, events.ChannelDelayed: // a message that was refused for now is sent again
	default:
		e.ID = events.ChannelID(d.Kind(), message)
	}
	seq, err := h.Log.Append(ctx, e)
	if err != nil {
		return err
	}
	return h.AwaitReadModels(ctx, seq)
}
