package realtime

import "strings"

// Present says whether an account looks at a chat just now: a realtime client of its follows what the chat is just saying, the
// chat's record, or records that it narrows to the chat.
func (s *Realtime) Present(user, chat string) bool {
	rt := &s.registry
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for _, c := range rt.clients {
		if c.who == nil || c.who.Account != user {
			continue
		}
		for _, sub := range c.follows {
			if sub.topic.admitted && sub.topic.about(chat) {
				return true
			}
		}
	}
	return false
}

// about says whether a topic is about one chat alone.
func (t topic) about(chat string) bool {
	return t.chat == chat || t.collection.Name == "chats" && t.id == chat || strings.Contains(t.query["filter"], chat)
}
