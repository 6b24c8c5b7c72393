package chat

import (
	"context"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
)

// AbortTurn stops the running turn of a chat, or one of its subagents.
type AbortTurn struct {
	handlers.Command
	Chat string `json:"chat"`
	// a subagent's session; empty for the chat's session and all of its subagents
	Session string `json:"session,omitempty"`
}

// Revert undoes a message, all later ones and their changes to files. A file that was changed since is kept.
type Revert struct {
	handlers.Command
	Chat      string `json:"chat"`
	Message   string `json:"message,omitempty"`   // OpenCode's msg_… id; empty to undo the last revert
	Overwrite bool   `json:"overwrite,omitempty"` // files that were changed since are not kept
}

// AbortTurn works even if the disk is almost full, because the turn may be what fills it. It fails if the log cannot
// store its event, because the queue of messages, budgets and delegations follow the event. Without a running turn the
// abort is recorded and has no effect.
func (h *Chats) AbortTurn(ctx context.Context, c AbortTurn) (uint64, error) {
	return h.request(log.UseLastSpace(ctx), c.Chat, c.Command, events.AbortRequested{Session: c.Session})
}

// Revert requests the revert. OpenCode reports the result with events of its own.
func (h *Chats) Revert(ctx context.Context, c Revert) (uint64, error) {
	if c.Message != "" {
		if _, err := events.ParseID(c.Message); err != nil {
			return 0, handlers.RefuseField(handlers.Invalid, "message", "message: %v", err)
		}
	}
	return h.request(ctx, c.Chat, c.Command, events.RevertRequested{Message: c.Message, Overwrite: c.Overwrite})
}

// requestState is a chat, and where a command on it was carried out.
type requestState struct {
	handlers.ChatState
	kind, command string
	done          uint64 // where the command was carried out
}

func (s *requestState) Apply(e events.Event) {
	s.ChatState.Apply(e)
	if e.Subject.Kind == s.kind && s.command != "" && e.Cause == s.command {
		s.done = e.Seq
	}
}

// request records what a person wants OpenCode to do in a chat. It decides nothing but whether the chat exists.
func (h *Chats) request(ctx context.Context, chat string, c handlers.Command, d events.Data) (uint64, error) {
	if err := handlers.CheckChat(chat); err != nil {
		return 0, err
	}
	f := handlers.NewFold(&requestState{kind: d.Kind(), command: c.ID}, events.ChatSubject(chat, d.Kind()),
		handlers.ChatFilter(chat))
	return f.ExecuteOne(ctx, h.Log, chat, c, func(s *requestState) (events.Data, uint64, error) {
		if err := s.Missing(chat); err != nil {
			return nil, 0, err
		}
		if s.done != 0 {
			return nil, s.done, nil
		}
		return d, 0, nil
	})
}
