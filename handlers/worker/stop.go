package worker

import (
	"context"
	"errors"
	"slices"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
)

// Stop stops a worker and the workers below it. It withdraws their waiting messages, and ends their turns and their
// commands.
type Stop struct {
	handlers.Command
	From   string `json:"-"` // chat whose assistant stops it; empty for a person
	Worker string `json:"worker"`
}

// Stop has no effect on a worker that does not run.
func (h *Workers) Stop(ctx context.Context, c Stop) error {
	if err := handlers.CheckChat(c.Worker); err != nil {
		return err
	}
	var all []string
	err := h.tree(ctx).Read(ctx, h.Log, func(t *tree) error {
		if _, err := t.worker(c.Worker); err != nil {
			return err
		}
		if c.From != "" && !t.isBelow(c.Worker, c.From) {
			return handlers.RefuseField(handlers.Invalid, "worker", "Chat %s is not a worker of this chat.", c.Worker)
		}
		for id, n := range t.chats {
			if id == c.Worker || n.created && !n.deleted && t.isBelow(id, c.Worker) {
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
	for _, worker := range all { // the upper ones first, so that they start no further workers
		if err := h.stop(ctx, worker, c.Command); err != nil {
			return err
		}
	}
	return nil
}

func (h *Workers) stop(ctx context.Context, worker string, c handlers.Command) error {
	waiting, err := h.Chats.Waiting(ctx, worker)
	if err != nil {
		return err
	}
	for _, message := range waiting {
		_, err := h.Chats.WithdrawMessage(ctx, chat.WithdrawMessage{Command: handlers.Command{Actor: c.Actor}, Chat: worker,
			Message: message})
		// a message that was sent meanwhile: AbortTurn ends its turn
		if refused := (handlers.Refused{}); err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	if _, err := h.Chats.AbortTurn(ctx, chat.AbortTurn{Command: c, Chat: worker}); err != nil {
		return err
	}
	if h.EndCommands == nil {
		return nil
	}
	return h.EndCommands(ctx, worker, c.Actor)
}
