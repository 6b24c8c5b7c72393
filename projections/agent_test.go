package projections_test

import (
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
)

// An answer keeps the agent that a person has chosen, also after OpenCode has shortened the session. Subagents keep
// their own name.
func TestAnAnswerHasTheChosenAgent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	user := func(session, id string) events.Event {
		return s.opencode(true, "message.updated", fmt.Sprintf(
			`{"sessionID":%q,"info":{"id":%q,"role":"user","agent":"build"}}`, session, id))
	}
	answer := func(session, id, parent, agent string) events.Event {
		return s.opencode(true, "message.updated", fmt.Sprintf(
			`{"sessionID":%q,"info":{"id":%q,"role":"assistant","parentID":%q,"agent":%q}}`, session, id, parent, agent))
	}
	feed(t, m, s.created(), s.submitted("m1"), s.own(events.MessageSending{Message: "m1", Session: ses,
		EngineMessage: "msg_1", EngineParts: []string{"prt_m1"}, Agent: "agent1", AgentName: "Reviewer"}),
		user(ses, "msg_1"), answer(ses, "msg_2", "msg_1", "build"),
		user(ses, "msg_3"), answer(ses, "msg_4", "msg_3", "compaction"), answer(ses, "msg_5", "msg_3", "build"),
		s.opencode(true, "session.created", fmt.Sprintf(`{"sessionID":"ses_child","info":{"id":"ses_child","parentID":%q}}`,
			ses)),
		user("ses_child", "msg_6"), answer("ses_child", "msg_7", "msg_6", "general"),
		s.submitted("m2"), s.sending("m2", "msg_8"), user(ses, "msg_8"),
		answer(ses, "msg_5", "msg_3", "build"), answer(ses, "msg_9", "msg_8", "build"))
	for id, want := range map[string][]string{
		"msg_2": {ses, "Reviewer", "agent1"}, "msg_4": {ses, "compaction", "agent1"}, "msg_5": {ses, "Reviewer", "agent1"},
		"msg_7": {"ses_child", "general", "agent1"}, "msg_9": {ses, "build", ""},
	} {
		call, found, err := m.ToolCall(t.Context(), want[0], id, "call_1")
		is.NoErr(err)
		is.True(found)
		is.Equal([]string{call.Agent, call.Chosen}, want[1:])
	}
}
