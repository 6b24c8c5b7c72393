package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

// TestOpenCodeRestarts kills OpenCode in the middle of turns and starts it again with its files. Then it asks OpenCode
// to stop.
func TestOpenCodeRestarts(t *testing.T) {
	t.Parallel()
	all := startServer(t)
	for _, stage := range []struct {
		name string
		test func(t *testing.T, s *server)
	}{
		{"a kill leaves turns unfinished and requests forgotten", killLeavesTurnsUnfinished},
		{"a stop rejects the calls that wait", stopRejectsWaitingCalls},
	} {
		t.Run(stage.name, func(t *testing.T) {
			s := all.in(t)
			defer func() { s.t = all.t; *all = *s }() // also after a failure: it may have another process
			stage.test(t, s)
		})
	}
}

func killLeavesTurnsUnfinished(t *testing.T, s *server) {
	is := is.New(t)
	asks, writes := s.newSession(), s.newSession()
	s.send(asks, command("true")+thenDone)
	r := s.asked(asks, 1)
	s.begin(writes)
	before := s.history("{}")
	s.kill()
	s.start()
	is.True(s.isIdle(asks))
	is.True(s.isIdle(writes))
	is.Equal(len(s.pending(s.workspace)), 0)
	is.True(s.client.Allow(t.Context(), s.workspace, r.ID) != nil)
	for _, session := range []string{asks, writes} {
		messages := s.messages(session)
		is.Equal(len(messages), 2)
		is.Equal(messages[1].Info.Time.Completed, int64(0))
	}
	expect.Contains(t, s.parts(asks), `"status":"running"`)
	expect.Contains(t, s.parts(writes), `"type":"text","text":""`)
	after := s.history("{}")
	is.Equal(after[:len(before)], before) // nothing of it is lost or changed
	s.say(writes, "@@say again")
	last := int64(-1)
	for _, e := range s.history("{}") {
		if e.Aggregate == writes {
			is.Equal(e.Seq, last+1)
			last = e.Seq
		}
	}
}

func stopRejectsWaitingCalls(t *testing.T, s *server) {
	asks, writes := s.newSession(), s.newSession()
	s.send(asks, command("true")+thenDone)
	s.asked(asks, 1)
	s.begin(writes)
	status, _ := s.call("POST", "/global/dispose", s.client.Password(), "")
	equal(t, status, http.StatusOK)
	expect.Eventually(t, "the turns end", func() bool {
		return strings.Contains(s.parts(asks), `"status":"error"`) && s.messages(writes)[1].Info.Time.Completed > 0
	})
	expect.Contains(t, s.parts(asks), `"The user rejected permission to use this specific tool call."`)
	expect.Contains(t, string(s.messages(writes)[1].Info.Error), "MessageAbortedError")
}
