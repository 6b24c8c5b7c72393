package handlers

import "pocketcoder/events"

// ChatState is the state of a chat that every command on it needs.
type ChatState struct {
	Created, Deleted uint64          // sequences of these events; 0 while there is none
	Owner            string          // id of the account that owns the chat; empty for a chat without an owner
	Project          string          // in which the chat is; empty before Created
	Agent            string          // record of ai_agents as which the assistant answers; empty for OpenCode's own agent
	Parent           *events.Parent  // of a delegate; nil for a chat of a person
	Ceiling          *events.Ceiling // the chat that limits what this one may do; nil for none
}

// ChatFilter matches the events that ChatState is folded from.
func ChatFilter(chat string) string { return events.ChatSubject(chat, "*") }

func (s *ChatState) Apply(e events.Event) {
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.ChatCreated:
		s.Created, s.Owner, s.Agent, s.Parent, s.Ceiling = e.Seq, d.User, d.Agent, d.Parent, d.Ceiling
		s.Project = d.ProjectID()
	case events.ChatUpdated:
		if d.User != nil {
			s.Owner = *d.User
		}
		if d.Agent != nil {
			s.Agent = *d.Agent
		}
	case events.Deleted, events.ChatErased:
		s.Deleted = e.Seq
	}
}

// Missing returns the refusal of a command on the chat, nil when the chat exists.
func (s *ChatState) Missing(chat string) error {
	if s.Created == 0 || s.Deleted != 0 {
		return Refuse(NotFound, "there is no chat %s", chat)
	}
	return nil
}

// CheckChat refuses an id that cannot be that of a chat.
func CheckChat(chat string) error {
	if _, err := events.ParseID(chat); err != nil {
		return RefuseField(Invalid, "chat", "chat: %v", err)
	}
	return nil
}
