package outbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
)

// awaitReplies waits for replies to a request, and returns their bodies.
func (s *system) awaitReplies(id string) (bodies []string) {
	s.T.Helper()
	expect.Eventually(s.T, "a reply to "+id, func() bool { return len(s.Requests("POST", "/"+id+"/reply")) > 0 })
	s.Drained()
	for _, r := range s.Requests("POST", "/"+id+"/reply") {
		if r.Directory != "/workspace" {
			s.T.Errorf("a reply in directory %q", r.Directory)
		}
		bodies = append(bodies, r.Body)
	}
	return bodies
}

func TestADecisionIsSentOnceAndNeverAsAlways(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := connected(t)
	s.Asking("ses_1", "per_yes", "per_no", "per_words")
	s.Decide("per_yes", events.Authorized, "fine")
	s.Decide("per_words", events.Denied, "use git instead")
	is.Equal(s.awaitReplies("per_yes"), []string{`{"reply":"once"}`})
	is.Equal(s.awaitReplies("per_words"), []string{`{"message":"use git instead","reply":"reject"}`})
	s.Decide("per_no", events.Denied, "")
	is.Equal(s.awaitReplies("per_no"), []string{`{"reply":"reject"}`})
	is.True(s.Permission("per_yes").Replied)
	for _, r := range s.Requests("POST", "/reply") {
		expect.Lacks(t, r.Body, "always")
	}
	is.Equal(len(s.Requests("POST", "/reply")), 3)
}

func TestAReplyIsTriedUntilOpenCodeTakesIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := connected(t)
	s.Asking("ses_1", "per_1")
	s.RefuseNext("POST", "/reply", 2, 500)
	s.Decide("per_1", events.Authorized, "")
	expect.Eventually(t, "it is taken", func() bool { return s.Permission("per_1").Replied })
	is.Equal(len(s.awaitReplies("per_1")), 3)
}

func TestADecisionIsSentAfterARestart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	s.Asking("ses_1", "per_1")
	r.Stop()
	s.Decide("per_1", events.Authorized, "")
	is.Equal(len(s.Requests("POST", "/reply")), 0)
	s.Start().Connected()
	is.Equal(s.awaitReplies("per_1"), []string{`{"reply":"once"}`})
}

func TestADecisionOpenCodeDoesNotWaitForExpires(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := connected(t)
	s.Asking("ses_1", "per_1")
	s.Forget()
	s.Decide("per_1", events.Authorized, "")
	expect.Eventually(t, "it expires", func() bool {
		return s.Permission("per_1").Status == events.Expired
	})
	is.Equal(len(s.awaitReplies("per_1")), 1)
	is.Equal(len(facts[events.PermissionExpired](s, s.ChatOf("ses_1"))), 1)
}

func TestAnInvalidApprovalIsRejected(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	s.Asking("ses_1", "per_1")
	s.Asking("ses_2", "per_2")
	r.Stop()
	chatID := s.Permission("per_1").Chat
	_, err := s.Permissions.Decide(t.Context(), permission.Decide{
		Command: handlers.Command{Actor: events.UserActor("u1")}, Chat: chatID, Permission: "per_1", Decision: events.Authorized, For: "1ns",
	})
	is.NoErr(err)
	s.Decide("per_2", events.Authorized, "")
	_, err = s.Chats.AbortTurn(t.Context(), chat.AbortTurn{Chat: s.Permission("per_2").Chat})
	is.NoErr(err)
	s.Start().Connected()
	for id, want := range map[string]string{"per_1": "the approval expired at", "per_2": "the turn was aborted"} {
		for _, body := range s.awaitReplies(id) {
			expect.Contains(t, body, `"reply":"reject"`)
			expect.Contains(t, body, want)
		}
		expired := func() []events.PermissionExpired { return facts[events.PermissionExpired](s, s.Permission(id).Chat) }
		expect.Eventually(t, "it is recorded", func() bool { return len(expired()) > 0 })
		expect.Contains(t, expired()[0].Reason, want)
	}
}

// changeReferredFile refers a request about an absent file to a person, and creates the file.
func (s *system) changeReferredFile(id string) {
	s.T.Helper()
	path := filepath.Join(s.T.TempDir(), "a.md")
	e, err := events.New(s.Permission(id).Chat, events.ActorPolicy,
		events.PermissionReferred{Permission: id, Files: []events.FileFingerprint{{Path: path, Absent: true}}})
	s.Must(err)
	seq, err := s.Log.Append(s.T.Context(), e)
	s.Must(err)
	s.Must(os.WriteFile(path, nil, 0o600))
	s.Must(s.Model.Wait(s.T.Context(), seq))
}

func TestAnApprovalOfAFileThatChangedIsRejected(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := connected(t)
	s.Asking("ses_1", "per_1")
	s.changeReferredFile("per_1")
	s.Decide("per_1", events.Authorized, "")
	bodies := s.awaitReplies("per_1")
	is.Equal(len(bodies), 1)
	expect.Contains(t, bodies[0], `"reply":"reject"`)
	expect.Contains(t, bodies[0], "a.md changed while the request waited. Read it again.")
	expect.Eventually(t, "it expires, with the reason, whichever event is first", func() bool {
		p := s.Permission("per_1")
		return p.Status == events.Expired && p.Replied &&
			strings.HasSuffix(p.Reason, "a.md changed while the request waited. Read it again.")
	})
}

func TestAnApprovalOfAFileThatChangedIsTriedUntilOpenCodeTakesIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := connected(t)
	s.Asking("ses_1", "per_1")
	s.changeReferredFile("per_1")
	s.RefuseNext("POST", "/reply", 2, 500)
	s.Decide("per_1", events.Authorized, "")
	expect.Eventually(t, "it is taken", func() bool {
		return len(facts[events.PermissionExpired](s, s.ChatOf("ses_1"))) == 1
	})
	is.Equal(len(s.awaitReplies("per_1")), 3)
}

// If OpenCode accepted an approval but its response was lost, OpenCode itself may have changed the file.
func TestALostResponseToAnApprovalExpiresTheRequest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := connected(t)
	s.Asking("ses_1", "per_1")
	s.changeReferredFile("per_1")
	s.Forget()
	s.Decide("per_1", events.Authorized, "")
	expect.Eventually(t, "it expires", func() bool {
		return s.Permission("per_1").Status == events.Expired
	})
	is.Equal(s.Permission("per_1").Reason, "OpenCode does not wait for it any more")
}

func TestAForgottenApprovalOfAFileThatChangedResumesTheTurnOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	s.Asking("ses_1", "per_1", "per_2")
	s.restart(r)
	s.changeReferredFile("per_1")
	s.Decide("per_1", events.Authorized, "")
	p := s.awaitPrompts(1)
	text := texts(p)[0]
	is.True(strings.HasPrefix(text, outbox.StalePrompt) && strings.HasSuffix(text,
		"a.md changed while the request waited. Read it again."))
	s.Answer("ses_1", p[0].MessageID)
	s.Decide("per_2", events.Authorized, "")
	p = s.awaitPrompts(2)
	is.Equal(texts(p)[1], outbox.ContinuePrompt)
	s.Answer("ses_1", p[1].MessageID)
	s.Drained()
	r.Stop()
	s.changeReferredFile("per_2")
	s.Start().Connected()
	for range 20 { // a while
		s.Drained()
	}
	is.Equal(len(s.promptsReceived()), 2)
	is.Equal(len(facts[events.PermissionExpired](s, s.ChatOf("ses_1"))), 0)
}

func TestATurnThatWasAbortedSinceIsNotContinued(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	s.Asking("ses_1", "per_1")
	s.restart(r)
	r.Stop()
	s.Decide("per_1", events.Authorized, "")
	_, err := s.Chats.AbortTurn(t.Context(), chat.AbortTurn{Chat: s.Permission("per_1").Chat})
	is.NoErr(err)
	s.Start().Connected()
	expect.Eventually(t, "it expires", func() bool {
		return s.Permission("per_1").Status == events.Expired
	})
	s.Drained()
	is.Equal(len(s.Requests("POST", "/prompt_async")), 0)
}

// restart replaces OpenCode by one that has forgotten its requests.
func (s *system) restart(r *bridgetest.Running) {
	s.T.Helper()
	s.Reconnected(r, s.Forget)
}

func TestApprovingAnInterruptedRequestContinuesTheTurnOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	s.Asking("ses_1", "per_1", "per_2")
	s.restart(r)
	is.True(s.Permission("per_1").Interrupted)
	s.Decide("per_1", events.Authorized, "")
	s.Decide("per_2", events.Denied, "no")
	p := s.awaitPrompts(1)
	is.Equal(texts(p), []string{outbox.ContinuePrompt})
	is.Equal(p[0].session, "ses_1")
	s.Answer("ses_1", p[0].MessageID)
	s.Drained()
	r.Stop()
	s.Start().Connected()
	for range 20 { // a while
		s.Drained()
	}
	is.Equal(len(s.promptsReceived()), 1)
	submitted := facts[events.MessageSubmitted](s, s.ChatOf("ses_1"))
	is.Equal(len(submitted), 1)
	is.Equal(submitted[0].Resumes, "per_1")
	is.Equal(len(s.Requests("POST", "/reply")), 0)
}

func TestCallsOfOneAnswerAreMadeAgainTogether(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	s.Asking("ses_1", "per_1", "per_2", "per_3")
	s.restart(r)
	r.Stop()
	s.Decide("per_1", events.Authorized, "")
	s.Decide("per_2", events.Authorized, "")
	s.Start().Connected()
	p := s.awaitPrompts(1)
	s.Answer("ses_1", p[0].MessageID)
	s.Drained()
	s.Decide("per_3", events.Authorized, "") // too late for the first prompt
	is.Equal(texts(s.awaitPrompts(2)), []string{outbox.ContinuePrompt, outbox.ContinuePrompt})
	submitted := facts[events.MessageSubmitted](s, s.ChatOf("ses_1"))
	is.Equal(len(submitted), 2)
	is.Equal(submitted[1].Resumes, "per_3")
}

func TestARequestApprovedAsOpenCodeDiesContinuesTheTurn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	s.Asking("ses_1", "per_1")
	s.Locked(func() { s.Silent = true }) // OpenCode accepts the reply and dies before the tool runs
	s.Decide("per_1", events.Authorized, "")
	is.Equal(len(s.awaitReplies("per_1")), 1)
	s.Locked(func() { s.Silent = false })
	s.restart(r)
	is.True(s.Permission("per_1").Interrupted)
	is.Equal(texts(s.awaitPrompts(1)), []string{outbox.ContinuePrompt})
}

func (s *system) answerQuestion(chatID, id string, index int, rejected bool, answers ...string) {
	s.T.Helper()
	seq, err := s.Chats.AnswerQuestion(s.T.Context(), chat.AnswerQuestion{
		Command: handlers.Command{Actor: events.UserActor("u1")}, Chat: chatID, Question: id, Index: index, Answers: answers, Rejected: rejected,
	})
	s.Must(err)
	s.Must(s.Model.Wait(s.T.Context(), seq))
}

func TestQuestionsAreAnsweredWhenAllHaveAnAnswer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := connected(t)
	s.Asking("ses_1")
	s.Happen(bridgetest.Plain("question.asked", bridgetest.Question("que_1", "ses_1")),
		bridgetest.Plain("question.asked", bridgetest.Question("que_2", "ses_1")))
	s.Drained()
	chat := s.ChatOf("ses_1")
	s.RefuseNext("POST", "/reply", 1, 500)
	s.answerQuestion(chat, "que_1", 1, false, "second")
	for range 20 { // a while
		s.Drained()
	}
	is.Equal(len(s.Requests("POST", "/reply")), 0)
	s.answerQuestion(chat, "que_1", 0, false, "first")
	expect.Eventually(t, "it is taken", func() bool { return len(s.OpenCodeEvents(chat, events.QuestionReplied)) == 1 })
	// two tries, because the first one failed
	is.Equal(s.awaitReplies("que_1"), []string{`{"answers":[["first"],["second"]]}`, `{"answers":[["first"],["second"]]}`})

	s.answerQuestion(chat, "que_2", 0, false, "an answer")
	s.answerQuestion(chat, "que_2", 1, true)
	expect.Eventually(t, "it is rejected", func() bool {
		return len(s.OpenCodeEvents(chat, events.QuestionRejected)) == 1
	})
	s.Drained()
	is.Equal(len(s.Requests("POST", "/que_2/reject")), 1)
	is.Equal(len(s.Requests("POST", "/que_2/reply")), 0)
}

func TestAnAnswerOpenCodeDoesNotWaitForExpires(t *testing.T) {
	t.Parallel()
	s, _ := connected(t)
	s.Asking("ses_1")
	s.Happen(bridgetest.Plain("question.asked", bridgetest.Question("que_1", "ses_1")))
	s.Drained()
	s.Forget()
	chat := s.ChatOf("ses_1")
	s.answerQuestion(chat, "que_1", 0, true)
	expect.Eventually(t, "it expires", func() bool { return len(facts[events.QuestionExpired](s, chat)) == 1 })
}
