package projections_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/projections"
)

// called is a tool part: input is of its call, as OpenCode shows it with the status.
func (s *eventBuilder) called(message, call, status, input string) events.Event {
	return s.opencode(true, "message.part.updated", fmt.Sprintf(
		`{"sessionID":%q,"part":{"id":"prt_%s","messageID":%q,"type":"tool","tool":"bash","callID":%q,"state":{"status":%q,"input":%s}}}`, ses, call, message, call, status, input))
}

func TestToolCallIsWaitedForUntilItsInputIsThere(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, m := &eventBuilder{t: t}, still(t)
	feed(t, m, s.begun()...)
	_, ok, err := m.ToolCall(t.Context(), ses, "msg_a", "call_1")
	is.NoErr(err)
	is.True(!ok) // no such message
	feed(t, m, s.assistant(ses, "msg_a", msg1, `,"agent":"build"`), s.called("msg_a", "call_1", "pending", "{}"),
		s.called("msg_a", "call_2", "running", `{"command":"ls"}`))
	found, ok, err := m.ToolCall(t.Context(), ses, "msg_a", "call_1")
	is.NoErr(err)
	is.True(ok)
	is.Equal(found, projections.ToolCall{Tool: "bash", Directory: directed, Agent: "build"}) // its input is not there yet

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = m.AwaitToolCall(ended, ses, "msg_a", "call_1")
	is.True(errors.Is(err, context.Canceled))
	waited := make(chan projections.ToolCall, 1)
	go func() {
		found, _ := m.AwaitToolCall(t.Context(), ses, "msg_a", "call_1")
		waited <- found
	}()
	feed(t, m, s.status(ses, "busy")) // something else
	feed(t, m, s.called("msg_a", "call_1", "running", `{"command":"pwd","workdir":"sub"}`))
	is.Equal(<-waited, projections.ToolCall{Tool: "bash", Input: `{"command":"pwd","workdir":"sub"}`, Directory: directed,
		Agent: "build"})

	_, ok, err = m.ToolCall(t.Context(), child, "msg_a", "call_1") // a call belongs to its session
	is.NoErr(err)
	is.True(!ok)
}

// OpenCode stores two calls with one id in one part.
func TestToolCallsWithOneIDAreSeveral(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, m := &eventBuilder{t: t}, still(t)
	feed(t, m, s.begun()...)
	feed(t, m, s.assistant(ses, "msg_a", msg1, ""))
	for _, c := range []struct {
		status, input string
		several       bool
	}{
		{"pending", `{}`, false},
		{"running", `{"command":"ls","workdir":"a","description":"d"}`, false},
		{"running", `{"workdir":"a","command":"ls","timeout":5}`, false}, // what the gate reads is the same
		{"completed", `{"command":"ls","workdir":"a"}`, false},
		{"pending", `{}`, false},
		{"running", `{"command":"ls","workdir":"b"}`, true},
		{"running", `{"command":"ls","workdir":"a"}`, true}, // it stays so
	} {
		feed(t, m, s.called("msg_a", "call_1", c.status, c.input))
		found, _, err := m.ToolCall(t.Context(), ses, "msg_a", "call_1")
		is.NoErr(err)
		is.Equal(found.Several, c.several)
	}
	feed(t, m, s.called("msg_a", "call_2", "running", `{}`), s.opencode(true, "message.part.updated",
		`{"sessionID":"`+ses+`","part":{"id":"prt_other","messageID":"msg_a","type":"tool","tool":"bash","callID":"call_2","state":{"status":"running","input":{}}}}`))
	found, _, err := m.ToolCall(t.Context(), ses, "msg_a", "call_2")
	is.NoErr(err)
	is.True(found.Several) // two parts

	for _, c := range []struct {
		input   string
		several bool
	}{
		{`{"to":"bob"}`, false},
		{`{"to":"bob","caller":"signed"}`, false}, // PocketCoder adds it
		{`{"to":"eve"}`, true},                    // a request would show the arguments of the other call
	} {
		feed(t, m, s.opencode(true, "message.part.updated", `{"sessionID":"`+ses+`","part":{"id":"prt_tool",`+
			`"messageID":"msg_a","type":"tool","tool":"pocketcoder_pay","callID":"call_3",`+
			`"state":{"status":"running","input":`+c.input+`}}}`))
		found, _, err := m.ToolCall(t.Context(), ses, "msg_a", "call_3")
		is.NoErr(err)
		is.Equal(found.Several, c.several)
	}
}

// A turn that waits for a person may wait for days, and must not hold up other chats.
func TestTurnsThatWaitForAPersonDoNotCountAsRunning(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, m := &eventBuilder{t: t}, still(t)
	running := func() int {
		running, err := m.CountRunningTurns(t.Context(), engine)
		is.NoErr(err)
		n := 0
		for _, of := range running {
			n += of
		}
		return n
	}
	feed(t, m, s.begun()...)
	feed(t, m, s.status(ses, "busy"), s.assistant(ses, "msg_a", msg1, ""), s.request("per_1", ses, "make"))
	is.Equal(running(), 1) // the policy may still decide
	feed(t, m, s.own(events.PermissionReferred{Permission: "per_1"}))
	is.Equal(running(), 0)
	feed(t, m, s.decides(user, "per_1", events.Authorized))
	is.Equal(running(), 1)
	feed(t, m, s.asksQuestions("que_1", "call_1"))
	is.Equal(running(), 0)
}
