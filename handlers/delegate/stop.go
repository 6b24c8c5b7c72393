package delegate

import (
	"context"
	"errors"
	"slices"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
)

// Stop stops a delegate and the delegates below it. It withdraws their waiting messages, and ends their turns and their
// commands.
type Stop struct {
	handlers.Command
	From     string `json:"-"` // chat whose assistant stops it; empty for a person
	Delegate string `json:"worker"`
}

// Stop has no effect on a delegate that does not run.
func (h *Delegates) Stop(ctx context.Context, c Stop) error {
	if err := handlers.CheckChat(c.Delegate); err != nil {
		return err
	}
	var all []string
	err := h.tree(ctx).Read(ctx, h.Log, func(t *tree) error {
		if _, err := t.delegate(c.Delegate); err != nil {
			return err
		}
		if c.From != "" && !t.isBelow(c.Delegate, c.From) {
			return handlers.RefuseField(handlers.Invalid, "worker", "Chat %s is not a delegate of this chat.", c.Delegate)
		}
		for id, n := range t.chats {
			if id == c.Delegate || n.created && !n.deleted && t.isBelow(id, c.Delegate) {
				all = append(all, id)
			}
		}
		slices.SortFunc(all, func(a, b string) int { return t.chats[a].parent.Depth - t.chats[b].parent.Depth })
		return nil
	})
	if err != nil {
		return err
	}
	if c.Actor == "" {
		c.Actor = events.ChatActor(c.From)
	}
	for _, delegate := range all { // the upper ones first, so that they start no further delegates
		if err := h.stop(ctx, delegate, c.Command); err != nil {
			return err
		}
	}
	return nil
}

func (h *Delegates) stop(ctx context.Context, delegate string, c handlers.Command) error {
	waiting, err := h.Chats.Waiting(ctx, delegate)
	if err != nil {
		return err
	}
	for _, message := range waiting {
		_, err := h.Chats.WithdrawMessage(ctx, chat.WithdrawMessage{Command: handlers.Command{Actor: c.Actor}, Chat: delegate,
			Message: message})
		// a message that was sent meanwhile: AbortTurn ends its turn
		if refused := (handlers.Refused{}); err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	if _, err := h.Chats.AbortTurn(ctx, chat.AbortTurn{Command: c, Chat: delegate}); err != nil {
		return err
	}
	if h.EndCommands == nil {
		return nil
	}
	return h.EndCommands(ctx, delegate, c.Actor)
}
