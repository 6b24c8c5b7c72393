package delegate

import (
	"context"
	"slices"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
)

// Send sends a message to another chat of the tree: the parent, a delegate, or a delegate of the same parent. A person
// may send one to any chat.
type Send struct {
	handlers.Command
	From     Caller // zero for a person
	Receiver string // chat
	Text     string
	Urgency  string // one of the Urgency… constants; empty for UrgencyQueue
}

// The urgencies of a message.
const (
	UrgencyQueue = "queue" // the receiver reads it after its running turn
	UrgencySteer = "steer" // the receiver reads it at the next step of its running turn
	UrgencyStop  = "stop"  // the running turn of the receiver, a delegate below, is stopped before
)

// Send returns the id of the message. A message of an assistant that wakes a delegate counts against the limits of
// running delegates.
func (h *Delegates) Send(ctx context.Context, c Send) (message string, err error) {
	if err := handlers.CheckChat(c.Receiver); err != nil {
		return "", err
	}
	h.starting.Lock()
	defer h.starting.Unlock()
	active, err := h.active(ctx)
	if err != nil {
		return "", err
	}
	err = h.tree(ctx).Read(ctx, h.Log, func(t *tree) error {
		to, err := t.chat(c.Receiver)
		if err != nil || c.From.Chat == "" {
			return err
		}
		if c.Receiver == c.From.Chat {
			return handlers.RefuseField(handlers.Invalid, "receiver", "A chat cannot send a message to itself.")
		}
		if t.root(c.Receiver) != t.root(c.From.Chat) {
			return handlers.RefuseField(handlers.Invalid, "receiver",
				"Chat %s does not belong to this tree of delegates. list_workers lists the chats that do.", c.Receiver)
		}
		if c.Urgency == UrgencyStop && !t.isBelow(c.Receiver, c.From.Chat) {
			return handlers.RefuseField(handlers.Invalid, "urgency",
				"Chat %s is not a delegate of this chat, so it cannot be stopped. Use %s or %s.", c.Receiver, UrgencyQueue,
				UrgencySteer)
		}
		if to.parent == nil || !to.finished || slices.Contains(active, c.Receiver) {
			return nil
		}
		return h.mayRun(t, to.parent.Chat, active)
	})
	if err != nil {
		return "", err
	}
	if c.Actor == "" {
		c.Actor = events.ChatActor(c.From.Chat)
	}
	submit := chat.SubmitMessage{Command: c.Command, Chat: c.Receiver, Message: c.ID, Sender: c.From.Chat,
		Parts: []events.Part{{Type: "text", Text: c.Text}}}
	if c.From.Call != "" {
		submit.Message = events.MessageOf(c.From.Chat, c.From.Session, c.From.Message, c.From.Call)
	}
	switch c.Urgency {
	case "", UrgencyQueue:
	case UrgencySteer:
		submit.Delivery = events.DeliverySteer
	case UrgencyStop:
		if err := chat.CheckParts(submit.Parts); err != nil {
			return "", err
		}
		if _, err := h.Chats.AbortTurn(ctx, chat.AbortTurn{Command: c.Command, Chat: c.Receiver}); err != nil {
			return "", err
		}
	default:
		return "", handlers.RefuseField(handlers.Invalid, "urgency", "urgency: want %s, %s or %s, got %.40q", UrgencyQueue,
			UrgencySteer, UrgencyStop, c.Urgency)
	}
	message, _, err = h.Chats.SubmitMessage(ctx, submit)
	return message, err
}
