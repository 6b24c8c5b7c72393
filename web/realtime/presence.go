package realtime

import "strings"

// IsViewing reports whether an account is viewing a chat: one of its clients follows the hot stream, the record of
// the chat, or a list with a filter for the chat.
func (s *Realtime) IsViewing(user, chat string) bool {
	rt := &s.registry
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for _, c := range rt.clients {
		if c.identity == nil || c.identity.Account != user {
			continue
		}
		for _, sub := range c.subscriptions {
			if sub.topic.admitted && sub.topic.concerns(chat) {
				return true
			}
		}
	}
	return false
}

// concerns reports whether a topic concerns one chat alone.
func (t topic) concerns(chat string) bool {
	return t.chat == chat || t.collection.Name == "chats" && t.id == chat || strings.Contains(t.query["filter"], chat)
}
