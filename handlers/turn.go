package handlers

import (
	"context"

	"pocketcoder/events"
	"pocketcoder/events/log"
)

// AbortTurn stops what the assistant is doing in a chat, or in one of its subagents.
type AbortTurn struct {
	Command
	Chat    string `json:"chat"`
	Session string `json:"session,omitempty"` // a subagent's session; empty for the chat's own, with everything below it
}

// RevertChat takes a message back, with what came after it and its changes to files.
type RevertChat struct {
	Command
	Chat    string `json:"chat"`
	Message string `json:"message,omitempty"` // OpenCode's msg_… id; empty to undo the last revert
}

// AbortTurn carries out the command, also when the disk is almost full: the turn may be what fills it. Aborting when nothing
// runs is no error: it is recorded and changes nothing.
func (h *Handlers) AbortTurn(ctx context.Context, c AbortTurn) (uint64, error) {
	return h.wish(log.UseLastSpace(ctx), c.Chat, c.Command, events.AbortRequested{Session: c.Session})
}

// RevertChat carries out the command. What OpenCode makes of it are its own events.
func (h *Handlers) RevertChat(ctx context.Context, c RevertChat) (uint64, error) {
	if c.Message != "" {
		if _, err := events.ParseID(c.Message); err != nil {
			return 0, refuseField(Invalid, "message", "message: %v", err)
		}
	}
	return h.wish(ctx, c.Chat, c.Command, events.RevertRequested{Message: c.Message})
}

type wishState struct {
	chatState
	kind, command string
	done          uint64 // where the command was carried out
}

func (s *wishState) apply(e events.Event) {
	s.chatState.apply(e)
	if e.Subject.Kind == s.kind && s.command != "" && e.Cause == s.command {
		s.done = e.Seq
	}
}

// wish records what a person wants OpenCode to do in a chat: there is nothing to decide but whether the chat is there.
func (h *Handlers) wish(ctx context.Context, chat string, c Command, d events.Data) (uint64, error) {
	s := &wishState{kind: d.Kind(), command: c.ID}
	filters := []string{events.ChatSubject(chat, d.Kind()), chatFilter(chat)}
	return h.handle(ctx, chat, c, s, filters, func() (events.Data, uint64, error) {
		if err := s.missing(chat); err != nil {
			return nil, 0, err
		}
		if s.done != 0 {
			return nil, s.done, nil
		}
		return d, 0, nil
	})
}
