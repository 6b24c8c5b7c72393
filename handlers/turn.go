package handlers

import (
	"context"

	"pocketcoder/events"
)

// AbortTurn stops what the assistant is doing in a chat, or in one of its subagents.
type AbortTurn struct {
	Command
	Chat    string `json:"chat"`
	Session string `json:"session,omitempty"` // a subagent's session; empty for the chat's own, with everything below it
}

// AbortTurn carries out the command. Aborting when nothing runs is no error: it is recorded and changes nothing.
func (h *Handlers) AbortTurn(ctx context.Context, c AbortTurn) (uint64, error) {
	s := &chatState{}
	d := events.AbortRequested{Session: c.Session}
	filters := []string{events.ChatSubject(c.Chat, d.Kind()), events.ChatSubject(c.Chat, events.ChatCreated{}.Kind())}
	return h.handle(ctx, c.Chat, c.Command, s, filters, func() (events.Data, uint64, error) {
		if s.created == 0 {
			return nil, 0, refuse(NotFound, "there is no chat %s", c.Chat)
		}
		return d, 0, nil
	})
}
