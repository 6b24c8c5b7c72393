package projections_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
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

// turns returns the turns of the chat in order, as "id state ending", and the current one with a star.
func turns(t *testing.T, m *projections.Model) (all []string) {
	t.Helper()
	current := chat(t, m).Current
	rows, err := store.List[projections.Turn](t.Context(), m.Model, "turns", "SELECT * FROM turns ORDER BY position", nil)
	is.New(t).NoErr(err)
	for _, u := range rows {
		line := strings.TrimSpace(u.ID + " " + u.State + " " + string(u.Ending))
		if u.ID == current {
			line = "*" + line
		}
		is.New(t).Equal(u.IsOver(), u.Ended > 0)
		all = append(all, line)
	}
	return all
}

func TestTurns(t *testing.T) {
	t.Parallel()
	type s = *eventBuilder
	const removed = `{"sessionID":"ses_own","messageID":"msg_a","partID":"prt_msg_a_1"}`
	for name, c := range map[string]struct {
		happens func(s) []any // events, and lists of them, after m1 was sent
		want    string
	}{
		"it runs": {func(s s) []any { return nil }, "*m1 running"},
		"answered": {func(s s) []any {
			return []any{s.step("msg_a", msg1, "stop", "text"), s.status(ses, "idle")}
		}, "*m1 completed complete"},
		"its stream broke off": {func(s s) []any {
			return []any{s.step("msg_a", msg1, "unknown", "text"), s.status(ses, "idle")}
		}, "*m1 failed lost"},
		"OpenCode went away": {func(s s) []any { return []any{s.own(events.TurnLost{Session: ses})} }, "*m1 lost lost"},
		"and ended it after all": {func(s s) []any {
			return []any{s.assistant(ses, "msg_a", msg1, ""), s.own(events.TurnLost{Session: ses}),
				s.step("msg_a", msg1, "stop", "text")}
		}, "*m1 completed complete"},
		"its text never came": {func(s s) []any {
			return []any{s.assistant(ses, "msg_a", msg1, ended), s.status(ses, "idle"),
				s.partIn(ses, "msg_a", "prt_9", "step-finish", "")}
		}, "*m1 failed empty"},
		"its text came late": {func(s s) []any {
			return []any{s.assistant(ses, "msg_a", msg1, ended), s.partIn(ses, "msg_a", "prt_9", "step-finish", ""),
				s.status(ses, "idle"), s.partIn(ses, "msg_a", "prt_1", "text", `,"text":"late"`)}
		}, "*m1 completed complete"},
		"its parts came first": {func(s s) []any {
			return []any{s.partIn(ses, "msg_a", "prt_9", "step-finish", ""),
				s.partIn(ses, "msg_a", "prt_1", "text", `,"text":"early"`), s.assistant(ses, "msg_a", msg1, ended),
				s.status(ses, "idle")}
		}, "*m1 completed complete"},
		"its text was removed": {func(s s) []any {
			return []any{s.step("msg_a", msg1, "stop", "text"), s.status(ses, "idle"),
				s.opencode(true, "message.part.removed", removed)}
		}, "*m1 failed empty"},
		"a person is asked": {func(s s) []any {
			return []any{s.assistant(ses, "msg_a", msg1, ""), s.request("per_1", ses, "ls"),
				s.own(events.PermissionReferred{Permission: "per_1"})}
		}, "*m1 waiting"},
		"a denial came late": {func(s s) []any {
			request := s.opencode(false, "permission.asked", fmt.Sprintf(
				`{"id":"per_1","sessionID":%q,"permission":"bash","tool":{"messageID":"msg_a","callID":"c1"}}`, ses))
			return []any{request, s.step("msg_a", msg1, "tool-calls", "text"), s.status(ses, "idle"),
				s.own(events.PermissionDecided{Permission: "per_1", Decision: events.Denied})}
		}, "*m1 failed denied"},
		"stopped after a call": {func(s s) []any {
			return []any{s.step("msg_a", msg1, "tool-calls", "text"), s.own(events.AbortRequested{}), s.status(ses, "idle")}
		}, "*m1 aborted stopped"},
		"another waits": {func(s s) []any { return []any{s.submitted("m2")} }, "*m1 running, m2 queued"},
		"the other one is next": {func(s s) []any {
			return []any{s.step("msg_a", msg1, "stop", "text"), s.submitted("m2"), s.status(ses, "idle")}
		}, "m1 completed complete, *m2 queued"},
		"the other one is deleted": {func(s s) []any {
			return []any{s.step("msg_a", msg1, "stop", "text"), s.submitted("m2"), s.status(ses, "idle"),
				s.own(events.MessageWithdrawn{Message: "m2"})}
		}, "*m1 completed complete, m2 aborted stopped"},
		"a stop holds the other one": {func(s s) []any {
			return []any{s.submitted("m2"), s.own(events.AbortRequested{}), s.assistant(ses, "msg_a", msg1, aborted),
				s.status(ses, "idle")}
		}, "*m1 aborted stopped, m2 queued"},
		"the other one joins it": {func(s s) []any {
			return []any{s.submitted("m2"), s.sending("m2", msg2), s.delivered("m2", msg2),
				s.step("msg_b", msg2, "length", "text"), s.status(ses, "idle")}
		}, "m1 failed cut, *m2 failed cut"},
		"the other one fails": {func(s s) []any {
			return []any{s.step("msg_0011", msg1, "length", "text"), s.status(ses, "idle"), s.submitted("m2"),
				s.sending("m2", msg2), s.delivered("m2", msg2), s.failed(ses, "UnknownError")}
		}, "m1 failed cut, *m2 failed failed"},
		"the chat is deleted": {func(s s) []any {
			return []any{s.submitted("m2"), s.own(events.Deleted{})}
		}, "m1 aborted stopped, *m2 aborted stopped"},
		"OpenCode works by itself": {func(s s) []any {
			return []any{s.step("msg_a", msg1, "stop", "text"), s.status(ses, "idle"), s.status(ses, "busy")}
		}, "m1 completed complete, *ses_own running"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, s := still(t), &eventBuilder{t: t}
			feed(t, m, s.begun()...)
			feed(t, m, s.status(ses, "busy"))
			for _, one := range c.happens(s) {
				switch one := one.(type) {
				case events.Event:
					feed(t, m, one)
				case []events.Event:
					feed(t, m, one...)
				}
			}
			is.New(t).Equal(strings.Join(turns(t, m), ", "), c.want)
		})
	}
}
