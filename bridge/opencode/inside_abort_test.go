package opencode

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/projections"
)

func (s *system) abortTurn(chatID, session string) {
	s.t.Helper()
	_, err := s.chats.AbortTurn(s.t.Context(), chat.AbortTurn{Command: handlers.Command{Actor: events.UserActor("u1")}, Chat: chatID, Session: session})
	s.must(err)
}

// family is a session with a subagent's below it and one below that, and a session of another chat; each has an ask and
// a question.
func (s *system) family() {
	s.asking("ses_1", "per_1")
	s.session("ses_2", "ses_1")
	s.session("ses_3", "ses_2")
	s.asking("ses_4", "per_4")
	for _, n := range []string{"2", "3"} {
		s.happen(plain("permission.asked", ask("per_"+n, "ses_"+n)))
	}
	for _, n := range []string{"1", "2", "3", "4"} {
		s.happen(plain("question.asked", question("que_"+n, "ses_"+n)))
	}
	s.drained()
}

// settledAsks says which of the family's asks and questions have expired here and were rejected there.
func (s *system) settledAsks() (expired, rejected string) {
	s.t.Helper()
	for _, n := range []string{"1", "2", "3", "4"} {
		if s.permission("per_"+n).Status == projections.PermissionExpired {
			expired += " per_" + n
		}
		for _, r := range s.requests("POST", "/per_"+n+"/reply") {
			if r.Body == `{"reply":"reject"}` {
				rejected += " per_" + n
			}
		}
	}
	for _, n := range []string{"1", "2", "3", "4"} {
		for _, q := range facts[events.QuestionExpired](s, s.chatOf("ses_"+n)) {
			if q.Question == "que_"+n {
				expired += " que_" + n
			}
		}
		for range s.requests("POST", "/que_"+n+"/reject") {
			rejected += " que_" + n
		}
	}
	return expired, rejected
}

func TestAnAbortStopsTheTurnAndSettlesWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.start().connected()
	s.family()
	s.silent = true // OpenCode 1.18.33 says nothing about the asks of an aborted turn, and keeps them
	s.abortTurn(s.chatOf("ses_1"), "")
	expect.Eventually(t, "the last question is dismissed", func() bool { return len(s.requests("POST", "/que_3/reject")) == 1 })
	is.Equal(len(s.requests("POST", "/session/ses_1/abort")), 1)
	is.Equal(len(s.requests("POST", "/abort")), 1)
	expired, rejected := s.settledAsks()
	is.Equal(expired, " per_1 per_2 per_3 que_1 que_2 que_3") // the subagents' too, not another chat's
	is.Equal(rejected, expired)
}

func TestAnAbortOfASubagentLeavesItsParentAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.start().connected()
	s.family()
	s.silent = true
	s.abortTurn(s.chatOf("ses_1"), "ses_2")
	expect.Eventually(t, "the last question is dismissed", func() bool { return len(s.requests("POST", "/que_3/reject")) == 1 })
	is.Equal(len(s.requests("POST", "/session/ses_2/abort")), 1)
	is.Equal(len(s.requests("POST", "/abort")), 1)
	expired, _ := s.settledAsks()
	is.Equal(expired, " per_2 per_3 que_2 que_3")
}

func TestAnAbortOfAnotherChatsSessionDoesNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.start().connected()
	s.family()
	s.abortTurn(s.chatOf("ses_1"), "ses_4")
	s.abortTurn(s.chat(), "") // nor that of a chat nothing has run in
	s.abortTurn(s.chatOf("ses_4"), "")
	expect.Eventually(t, "the last one is carried out", func() bool { return s.permission("per_4").Status == projections.PermissionExpired })
	for range 20 { // a while
		s.drained()
	}
	is.Equal(len(s.requests("POST", "/session/ses_4/abort")), 1)
	is.Equal(len(s.requests("POST", "/abort")), 1)
}

func TestAnAbortIsTriedUntilOpenCodeTakesIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	r := s.start().connected()
	s.asking("ses_1", "per_1")
	s.refusing("POST", "/abort", 1, 500)
	s.abortTurn(s.chatOf("ses_1"), "")
	expect.Eventually(t, "it is tried", func() bool { return len(s.requests("POST", "/abort")) == 1 })
	is.Equal(s.permission("per_1").Status, projections.PermissionDraft)
	expect.Eventually(t, "it is taken", func() bool { return s.permission("per_1").Status == projections.PermissionExpired })
	is.Equal(len(s.requests("POST", "/abort")), 2)

	s.cut()
	expect.Eventually(t, "the bridge notices", func() bool { return !r.Condition().Connected })
	s.abortTurn(s.chatOf("ses_1"), "")
	s.back()
	expect.Eventually(t, "the other is taken", func() bool { return len(s.requests("POST", "/abort")) == 3 })
}
