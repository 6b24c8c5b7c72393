package projections_test

import (
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
)

const (
	ses   = "ses_own"
	child = "ses_child"
	msg1  = "msg_001" // OpenCode's id of the first message a person sends
	msg2  = "msg_002"
)

// eventBuilder makes the events of a chat, OpenCode's with growing durable sequences.
type eventBuilder struct {
	t   testing.TB
	seq int64
	n   int
}

func (s *eventBuilder) opencode(durable bool, typ, properties string) events.Event {
	seq := int64(-1)
	if durable {
		seq, s.seq = s.seq, s.seq+1
	}
	s.n++
	return openCodeEvent(s.t, fmt.Sprintf("evt_%d", s.n), seq, typ, properties)
}

func (s *eventBuilder) status(session, status string) events.Event {
	return s.opencode(false, "session.status", fmt.Sprintf(`{"sessionID":%q,"status":{"type":%q}}`, session, status))
}

func (s *eventBuilder) failed(session, name string) events.Event {
	return s.opencode(false, "session.error", fmt.Sprintf(`{"sessionID":%q,"error":{"name":%q,"data":{"message":"no"}}}`,
		session, name))
}

func (s *eventBuilder) userMessage(id string) events.Event {
	return s.opencode(true, "message.updated", fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"role":"user"}}`, ses, id))
}

// assistant is an assistant message: more is further JSON of its info, such as its end.
func (s *eventBuilder) assistant(session, id, parent, more string) events.Event {
	return s.opencode(true, "message.updated", fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"role":"assistant","parentID":%q%s}}`, session, id, parent, more))
}

func (s *eventBuilder) child() events.Event {
	return s.opencode(true, "session.created", fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"parentID":%q,"title":"look","agent":"general"}}`, child, child, ses))
}

func (s *eventBuilder) own(d events.Data) events.Event { return own(s.t, user, d) }

func (s *eventBuilder) created() events.Event {
	return s.own(events.ChatCreated{Title: "Chat", User: "ann", Engine: engine})
}

func (s *eventBuilder) submitted(id string) events.Event {
	return s.own(events.MessageSubmitted{Message: id, Parts: []events.Part{{Type: "text", Text: "words of " + id}}})
}

func (s *eventBuilder) sending(id, engineID string) events.Event {
	return s.own(events.MessageSending{Message: id, Session: ses, EngineMessage: engineID,
		EngineParts: []string{"prt_" + id}})
}

func (s *eventBuilder) delivered(id, engineID string) events.Event {
	return s.own(events.MessageDelivered{Message: id, EngineMessage: engineID})
}

// begun is a chat with a session, and its first message sent, delivered and echoed.
func (s *eventBuilder) begun() []events.Event {
	return []events.Event{
		s.created(), s.own(events.SessionBound{Session: ses, Directory: directed}),
		s.submitted("m1"), s.sending("m1", msg1), s.delivered("m1", msg1), s.userMessage(msg1),
	}
}

const (
	ended      = `,"finish":"stop","time":{"completed":5}`
	wantsTools = `,"finish":"tool-calls","time":{"completed":5}`
	aborted    = `,"time":{"completed":5},"error":{"name":"MessageAbortedError","data":{}}`
)

func TestTurnFollowsTheChatsOwnSession(t *testing.T) {
	t.Parallel()
	type step struct {
		event events.Event
		turn  string
	}
	s := &eventBuilder{t: t, seq: 100} // after what has begun
	for name, steps := range map[string][]step{
		"an answer gives it back when the session is idle": {
			{s.status(ses, "busy"), "assistant"}, {s.assistant(ses, "msg_a", msg1, ""), "assistant"},
			{s.assistant(ses, "msg_a", msg1, ended), "assistant"}, {s.status(ses, "idle"), "user"},
		},
		"between two steps it stays": {
			{s.status(ses, "busy"), "assistant"}, {s.assistant(ses, "msg_a", msg1, ended), "assistant"},
			{s.assistant(ses, "msg_b", msg1, ""), "assistant"}, {s.assistant(ses, "msg_b", msg1, ended), "assistant"}, {s.status(ses, "idle"), "user"},
		},
		"idle before the aborted message has ended is too early": {
			{s.status(ses, "busy"), "assistant"}, {s.assistant(ses, "msg_a", msg1, ""), "assistant"}, {s.failed(ses, "MessageAbortedError"), "assistant"},
			{s.status(ses, "idle"), "assistant"}, {s.assistant(ses, "msg_a", msg1, aborted), "user"}, {s.status(ses, "idle"), "user"},
		},
		"a late idle of the turn before does not end the next": {
			{s.status(ses, "busy"), "assistant"}, {s.assistant(ses, "msg_a", msg1, aborted), "assistant"}, {s.status(ses, "idle"), "user"},
			{s.submitted("m2"), "assistant"}, {s.sending("m2", msg2), "assistant"}, {s.delivered("m2", msg2), "assistant"}, {s.status(ses, "idle"), "assistant"},
			{s.assistant(ses, "msg_a", msg1, aborted), "assistant"}, {s.assistant(ses, "msg_b", msg2, ended), "user"},
		},
		"an answer that is over before we noted the delivery": {
			{s.assistant(ses, "msg_a", msg1, ended), "user"}, {s.submitted("m2"), "assistant"}, {s.sending("m2", msg2), "assistant"},
			{s.userMessage(msg2), "assistant"}, {s.status(ses, "busy"), "assistant"}, {s.assistant(ses, "msg_b", msg2, ended), "assistant"},
			{s.status(ses, "idle"), "user"}, {s.delivered("m2", msg2), "user"},
		},
		"an error without an answer and without idle": {{s.failed(ses, "UnknownError"), "user"}},
		"a retry is still its turn":                   {{s.status(ses, "retry"), "assistant"}},
		"a message written meanwhile keeps it": {
			{s.submitted("m2"), "assistant"}, {s.assistant(ses, "msg_a", msg1, ended), "assistant"}, {s.status(ses, "idle"), "assistant"},
			{s.sending("m2", msg2), "assistant"}, {s.own(events.MessageFailed{Message: "m2", Domain: "infrastructure", Error: "no"}), "user"},
		},
		"a subagent's session never moves it": {
			{s.assistant(ses, "msg_a", msg1, ended), "user"}, {s.child(), "user"}, {s.status(child, "busy"), "user"},
			{s.assistant(child, "msg_c", "msg_p", ""), "user"}, {s.status(ses, "busy"), "assistant"}, {s.status(child, "idle"), "assistant"},
		},
		"a lost turn is over": {
			{s.status(ses, "busy"), "assistant"}, {s.assistant(ses, "msg_a", msg1, ""), "assistant"}, {s.own(events.TurnLost{Session: ses}), "user"},
		},
		"a turn lost before the answer began is over": {{s.own(events.TurnLost{Session: ses}), "user"}},
		"a turn lost while the next message is being sent is not": {
			{s.assistant(ses, "msg_a", msg1, ended), "user"}, {s.submitted("m2"), "assistant"}, {s.sending("m2", msg2), "assistant"},
			{s.own(events.TurnLost{Session: ses}), "assistant"}, {s.delivered("m2", msg2), "assistant"}, {s.assistant(ses, "msg_b", msg2, ended), "user"},
		},
		"another session bound is the chat's own from then on": {
			{s.status(ses, "busy"), "assistant"}, {s.own(events.SessionBound{Session: "ses_new", Directory: directed}), "user"},
			{s.status(ses, "busy"), "user"}, {s.status("ses_new", "busy"), "assistant"},
		},
		"a deleted session runs nothing": {
			{s.assistant(ses, "msg_a", msg1, ""), "assistant"},
			{s.opencode(true, "session.deleted", fmt.Sprintf(`{"sessionID":%q}`, ses)), "user"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			m := still(t)
			feed(t, m, (&eventBuilder{t: t}).begun()...)
			for i, step := range steps {
				feed(t, m, step.event)
				chat, found, err := m.Chat(t.Context(), chatID)
				is.NoErr(err)
				is.True(found)
				if chat.Turn != step.turn {
					t.Fatalf("after step %d (%s) it is the turn of %s", i+1, step.event.RawSubject, chat.Turn)
				}
			}
		})
	}
}
