package channel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"time"

	"pocketcoder/bridge/outbox"
	"pocketcoder/events"
	"pocketcoder/events/log/blob"
	"pocketcoder/handlers/channel"
	"pocketcoder/projections"
)

// recordUnknown records that a platform may or may not have a message, and notifies the conversation.
func (h *Hub) recordUnknown(ctx context.Context, m projections.ChannelMessage, why string) error {
	if m.Type != events.OutgoingNotice {
		if err := h.notify(ctx, m, "unknown", "A message may not have reached you. Read it here: "); err != nil {
			return err
		}
	}
	return h.Channels.Record(ctx, m.Chat, m.ID,
		events.ChannelFailed{Message: m.ID, Reason: why, Unknown: true, Attempts: int(m.Attempts)})
}

// notify queues a notice about a message, which ends with a link to its chat. what names the reason.
func (h *Hub) notify(ctx context.Context, m projections.ChannelMessage, what, text string) error {
	return h.Channels.Queue(ctx, m.Chat, events.ChannelQueued{Message: events.ChannelID(m.ID, what), Channel: m.Channel,
		Place: m.Place, Type: events.OutgoingNotice, Text: text + h.URL + "/?chat=" + url.QueryEscape(m.Chat)})
}

// deliver sends a message and records the result. It sends nothing if no reader is left or the request is decided. It
// returns an error if the message must be sent later. If an earlier process began to send the message, the result is
// unknown, because a platform cannot be asked whether it has the message.
func (h *Hub) deliver(ctx context.Context, e outbox.Effect[projections.ChannelMessage]) error {
	m := e.Of
	if m.State == projections.ChannelMessageSending {
		return h.recordUnknown(ctx, m, "PocketCoder stopped while it sent this message")
	}
	p := h.platform(m.Channel)
	if p == nil {
		return outbox.Again{Err: errors.New("the channel has just been disabled"), After: lookAgain}
	}
	if m.About != "" { // a direct notice may go to a person who is not paired
		may, err := h.Model.MaySendChannelMessage(ctx, m, events.FormatTime(time.Now()))
		if err != nil {
			return err
		}
		if !may {
			return h.fail(ctx, m, "no paired account of this conversation may read the chat")
		}
	}
	buttons, pending, err := h.buttons(ctx, m)
	if err != nil {
		return err
	}
	if !pending {
		return h.fail(ctx, m, "it was decided before it could be sent")
	}
	thread, err := h.Model.ChannelThreadOf(ctx, m)
	if err != nil {
		return err
	}
	file, err := h.file(ctx, m)
	if blob.IsLost(err) {
		return h.recordRefused(ctx, m, file, "the content of the file is not in the log")
	}
	if err != nil {
		return err
	}
	m.Attempts++
	if err := h.Channels.Record(ctx, m.Chat, m.ID, events.ChannelSending{Message: m.ID}); err != nil {
		return err
	}
	return h.transmit(ctx, p, m, Message{ID: m.ID, Text: m.Text, Buttons: buttons, File: file, Thread: thread})
}

// transmit sends a message, and records the result. It returns an error if the message still waits.
func (h *Hub) transmit(ctx context.Context, p Platform, m projections.ChannelMessage, message Message) error {
	patient, cancel := outbox.Patient(ctx)
	defer cancel()
	receipt, err := p.Send(patient, m.Place, message)
	again := RetryError{}
	recordErr := outbox.Record(ctx, h.Logger, func(ctx context.Context) error {
		switch {
		case err == nil:
			return h.Channels.Record(ctx, m.Chat, m.ID, events.ChannelSent{Message: m.ID, Receipt: receipt,
				Attempts: int(m.Attempts)})
		case errors.As(err, new(PermanentError)):
			return h.recordRefused(ctx, m, message.File, err.Error())
		case errors.As(err, &again):
			return h.Channels.Record(ctx, m.Chat, m.ID,
				events.ChannelDelayed{Message: m.ID, Reason: err.Error(), Attempts: int(m.Attempts)})
		}
		return h.recordUnknown(ctx, m, err.Error())
	})
	switch {
	case recordErr != nil || again.Err == nil:
		return recordErr
	case again.After > 0:
		return outbox.Again{Err: err, After: again.After}
	}
	return err
}

// recordRefused records that a platform refuses a message for good. It may accept a notice in place of a file.
func (h *Hub) recordRefused(ctx context.Context, m projections.ChannelMessage, file *File, reason string) error {
	if file != nil {
		text := "The file " + file.Name + " could not be sent. It is in the chat: "
		if err := h.notify(ctx, m, "refused", text); err != nil {
			return err
		}
	}
	return h.fail(ctx, m, reason)
}

func (h *Hub) fail(ctx context.Context, m projections.ChannelMessage, reason string) error {
	return h.Channels.Record(ctx, m.Chat, m.ID, events.ChannelFailed{Message: m.ID, Reason: reason,
		Attempts: int(m.Attempts)})
}

func (h *Hub) drop(ctx context.Context, e outbox.Effect[projections.ChannelMessage]) error {
	return h.fail(ctx, e.Of, fmt.Sprintf("more than %d messages waited for this conversation", maxOpen))
}

// file returns the file that a message carries, as it is in the log; nil for a message without a file.
func (h *Hub) file(ctx context.Context, m projections.ChannelMessage) (*File, error) {
	if m.Type != events.OutgoingFile {
		return nil, nil
	}
	a, found, err := h.Model.Artifact(ctx, m.About)
	if err != nil || !found {
		return nil, cmp.Or(err, blob.ErrNotFound)
	}
	file := &File{Name: path.Base(a.Path)}
	file.Content, err = h.Channels.Log.Blobs.Read(ctx, events.Blob{Name: a.Blob, Size: a.Size, SHA256: a.SHA256})
	return file, err
}

// buttons creates the buttons of a message, and reports whether what it is about is still to be decided.
func (h *Hub) buttons(ctx context.Context, m projections.ChannelMessage) (list []Button, pending bool, err error) {
	offer := func(title string, b channel.Button) {
		if err != nil {
			return
		}
		b.Channel, b.Place = m.Channel, m.Place
		var token string
		token, err = h.Channels.CreateButton(ctx, b)
		list = append(list, Button{oneLine(title), b.Verb(), token})
	}
	switch m.Type {
	case events.OutgoingPermission:
		request, found, err := h.Model.FindPermission(ctx, m.About)
		if err != nil || !found || !request.WaitsForPerson() {
			return nil, false, err
		}
		b := channel.Button{Chat: request.Chat, Permission: request.EnginePermission, Request: request.Request,
			Files: request.FilesHash}
		if b.Decision = events.Authorized; m.Whole {
			offer("Approve", b)
		}
		b.Decision = events.Denied
		offer("Deny", b)
	case events.OutgoingQuestion:
		q, found, err := h.question(ctx, m.About)
		if err != nil || !found || !q.WaitsForPerson() {
			return nil, false, err
		}
		if q.Multiple {
			break
		}
		for _, label := range choicesOf(q) {
			offer(label, channel.Button{Chat: q.Chat, Question: q.EngineQuestion, Index: int(q.Index), Answer: label})
		}
	}
	return list, err == nil, err
}
