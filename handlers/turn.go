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

type abortState struct {
	chatState
	command string // its id
	done    uint64 // where it was carried out
}

func (s *abortState) apply(e events.Event) {
	s.chatState.apply(e)
	if e.Subject.Kind == (events.AbortRequested{}).Kind() && s.command != "" && e.Cause == s.command {
		s.done = e.Seq
	}
}

// AbortTurn carries out the command. Aborting when nothing runs is no error: it is recorded and changes nothing.
func (h *Handlers) AbortTurn(ctx context.Context, c AbortTurn) (uint64, error) {
	s := &abortState{command: c.ID}
	d := events.AbortRequested{Session: c.Session}
	filters := []string{events.ChatSubject(c.Chat, d.Kind()), events.ChatSubject(c.Chat, events.ChatCreated{}.Kind())}
	return h.handle(ctx, c.Chat, c.Command, s, filters, func() (events.Data, uint64, error) {
		if s.created == 0 {
			return nil, 0, refuse(NotFound, "there is no chat %s", c.Chat)
		}
		if s.done != 0 {
			return nil, s.done, nil
		}
		return d, 0, nil
	})
}
