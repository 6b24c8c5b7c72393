package outbox_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// askQuestions starts a session whose turn waits for the answers to questions.
func (s *system) askQuestions(session string, questions ...string) (chat string) {
	s.T.Helper()
	s.Asking(session)
	for _, id := range questions {
		s.Happen(bridgetest.Plain("question.asked", bridgetest.Question(id, session)))
	}
	s.Drained()
	return s.ChatOf(session)
}

// questionRow returns the first question of a tool call.
func (s *system) questionRow(id string) projections.PendingQuestion {
	s.T.Helper()
	group, err := s.Model.QuestionsOf(s.T.Context(), id)
	s.Must(err)
	if len(group) == 0 {
		s.T.Fatalf("question %s is not known", id)
	}
	return group[0]
}

// questionTool returns the part of the tool call that asked a question.
func questionTool(session, state string) string {
	return fmt.Sprintf(`{"sessionID":%q,"part":{"id":"prt_question","messageID":"msg_%s","sessionID":%q,"type":"tool","tool":"question","callID":"c","state":%s}}`, session, session, session, state)
}

const answeredPrompt = outbox.AnswersPrompt + `

Question: A?
Answer: first

Question: B?
Answer: second
`

// answerBoth answers both questions of bridgetest.Question.
func (s *system) answerBoth(chat, question string) {
	s.T.Helper()
	s.answerQuestion(chat, question, 0, false, "first")
	s.answerQuestion(chat, question, 1, false, "second")
}

func TestAnsweringInterruptedQuestionsResumesTheTurnOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	chat := s.askQuestions("ses_1", "que_1")
	s.answerQuestion(chat, "que_1", 1, false, "second") // one answer before the restart
	s.restart(r)
	s.restart(r)
	is.True(s.questionRow("que_1").Interrupted)
	is.Equal(facts[events.QuestionInterrupted](s, chat), []events.QuestionInterrupted{{Question: "que_1"}})
	is.Equal(len(facts[events.TurnLost](s, chat)), 1)
	for range 20 { // a while
		s.Drained()
	}
	is.Equal(len(s.promptsReceived()), 0)

	s.answerQuestion(chat, "que_1", 0, false, "first")
	p := s.awaitPrompts(1)
	is.Equal(texts(p), []string{answeredPrompt + "\nGo on with that; there is no need to ask again."})
	is.Equal(p[0].session, "ses_1")
	s.Answer("ses_1", p[0].MessageID)
	s.Drained()
	r.Stop()
	r = s.Start().Connected()
	s.restart(r)
	for range 20 { // a while
		s.Drained()
	}
	is.Equal(len(s.promptsReceived()), 1)
	submitted := facts[events.MessageSubmitted](s, chat)
	is.Equal(len(submitted), 1)
	is.Equal(submitted[0].Resumes, "que_1")
	is.Equal(len(s.Requests("POST", "/reply")), 0)
	is.Equal([]any{s.questionRow("que_1").Status, s.questionRow("que_1").EngineReplied},
		[]any{projections.QuestionReplied, true})
}

func TestARejectedInterruptedQuestionResumesNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	chat := s.askQuestions("ses_1", "que_1", "que_2")
	s.answerQuestion(chat, "que_2", 0, false, "first")
	s.restart(r)
	s.answerQuestion(chat, "que_1", 0, true)
	s.answerQuestion(chat, "que_2", 1, true)
	for range 20 { // a while
		s.Drained()
	}
	is.Equal(len(s.promptsReceived()), 0)
	is.Equal(len(s.Requests("POST", "/reject")), 0)
	for _, id := range []string{"que_1", "que_2"} {
		group, err := s.Model.QuestionsOf(t.Context(), id)
		is.NoErr(err)
		is.Equal(group[1].Status, projections.QuestionRejected)
		is.True(group[1].EngineReplied) // no effect is left
	}
	is.Equal(len(facts[events.QuestionExpired](s, chat)), 0)
}

func TestAnswersThatOpenCodeTookAsItDiedResumeTheTurn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	chat := s.askQuestions("ses_1", "que_1")
	s.Locked(func() { s.Silent = true }) // OpenCode accepts the answers and dies before the call ends
	s.answerBoth(chat, "que_1")
	is.Equal(len(s.awaitReplies("que_1")), 1)
	s.Locked(func() { s.Silent = false })
	s.restart(r)
	is.True(strings.HasPrefix(texts(s.awaitPrompts(1))[0], answeredPrompt))
}

func TestAnswersGivenWhileOpenCodeIsAwayResumeTheTurn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	chat := s.askQuestions("ses_1", "que_1")
	s.RefuseNext("POST", "/reply", 1000, 500) // OpenCode is dying
	s.answerBoth(chat, "que_1")
	is.True(len(s.awaitReplies("que_1")) > 0)
	s.restart(r)
	is.True(strings.HasPrefix(texts(s.awaitPrompts(1))[0], answeredPrompt))
	is.Equal(len(facts[events.QuestionExpired](s, chat)), 0)
}

func TestAcceptedAnswersAreNoInterruption(t *testing.T) {
	for name, after := range map[string]struct {
		state    string
		status   string
		rejected bool
	}{
		"the call completed": {`{"status":"completed","output":"User has answered"}`, bridgetest.Idle, false},
		"the turn goes on":   {`{"status":"running","input":{}}`, bridgetest.Busy, false},
		"it was dismissed":   {`{"status":"error","error":"The user dismissed this question"}`, bridgetest.Idle, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s, r := connected(t)
			chat := s.askQuestions("ses_1", "que_1")
			s.Locked(func() { s.Silent = true })
			s.answerQuestion(chat, "que_1", 0, false, "first")
			s.answerQuestion(chat, "que_1", 1, after.rejected, map[bool][]string{false: {"second"}}[after.rejected]...)
			path := map[bool]string{false: "/que_1/reply", true: "/que_1/reject"}[after.rejected]
			expect.Eventually(t, "OpenCode gets it", func() bool { return len(s.Requests("POST", path)) == 1 })
			s.Reconnected(r, func() {
				s.AppendUnsent(s.Durably("ses_1", "message.part.updated", questionTool("ses_1", after.state))...)
				s.AppendUnsent(bridgetest.Plain("session.status", after.status))
			})
			q := s.questionRow("que_1")
			is.Equal(q.Status == projections.QuestionRejected, after.rejected)
			is.True(!q.Interrupted) // otherwise the model would get the answers twice
			is.True(q.EngineReplied)
			is.Equal(len(facts[events.MessageSubmitted](s, chat)), 0)
			is.Equal(len(facts[events.QuestionExpired](s, chat)), 0)
			is.Equal(len(s.Requests("POST", path)), 1)
		})
	}
}

func TestAQuestionAnsweredElsewhereExpires(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	chat := s.askQuestions("ses_1", "que_1")
	s.Reconnected(r, func() {
		s.AppendUnsent(s.Durably("ses_1", "message.part.updated", questionTool("ses_1",
			`{"status":"completed","output":"User has answered"}`))...)
		s.AppendUnsent(bridgetest.Plain("question.replied", `{"sessionID":"ses_1","requestID":"que_1","answers":[["a"],["b"]]}`),
			bridgetest.Plain("session.status", bridgetest.Idle))
	})
	is.Equal(facts[events.QuestionExpired](s, chat),
		[]events.QuestionExpired{{Question: "que_1", Reason: "it was answered elsewhere, or its tool call is over"}})
	is.Equal([]string{s.questionRow("que_1").Status, s.questionRow("que_1").Reason},
		[]string{projections.QuestionExpired, "it was answered elsewhere, or its tool call is over"})
}

func TestTheSameQuestionAskedAgainReplacesTheInterruptedOne(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	chatID := s.askQuestions("ses_1", "que_1")
	s.answerQuestion(chatID, "que_1", 1, false, "second")
	s.restart(r)
	s.Happen(bridgetest.Plain("question.asked", bridgetest.Question("que_2", "ses_1")),
		bridgetest.Plain("question.asked", strings.ReplaceAll(bridgetest.Question("que_3", "ses_1"), "A?", "C?")))
	expect.Eventually(t, "the first expires", func() bool {
		return s.questionRow("que_1").Status == projections.QuestionExpired
	})
	s.Drained()
	is.Equal(facts[events.QuestionExpired](s, chatID),
		[]events.QuestionExpired{{Question: "que_1", Reason: "asked again as que_2"}})
	is.Equal([]string{s.questionRow("que_2").Status, s.questionRow("que_3").Status},
		[]string{projections.QuestionAsked, projections.QuestionAsked})
	is.Equal(len(s.Requests("POST", "/reject")), 0)
	_, err := s.Chats.AnswerQuestion(t.Context(), chat.AnswerQuestion{Chat: chatID, Question: "que_1",
		Answers: []string{"first"}})
	is.True(err != nil && strings.Contains(err.Error(), "asked again as que_2"))
}

func TestAQuestionWhoseTurnIsAbortedInOpenCodeExpires(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := connected(t)
	chat := s.askQuestions("ses_1", "que_1")
	// OpenCode 1.18.33 keeps listing the question
	aborted := `{"status":"error","error":"Tool execution aborted","metadata":{"interrupted":true}}`
	s.Happen(s.Durably("ses_1", "message.part.updated", questionTool("ses_1", aborted))...)
	expect.Eventually(t, "it is dismissed", func() bool { return len(s.Requests("POST", "/que_1/reject")) == 1 })
	s.Drained()
	is.Equal(facts[events.QuestionExpired](s, chat),
		[]events.QuestionExpired{{Question: "que_1", Reason: "the turn was aborted"}})
	is.Equal(s.questionRow("que_1").Status, projections.QuestionExpired) // that it was dismissed changes nothing
}

func TestACallThatEndsAsOpenCodeStopsLeavesItsQuestionAnswerable(t *testing.T) {
	for name, end := range map[string]string{
		"aborted": `{"status":"error","error":"Tool execution aborted","metadata":{"interrupted":true}}`,
		// if OpenCode waits for another session's command before it interrupts this session
		"dismissed": `{"status":"error","error":"The user dismissed this question"}`,
	} {
		for answered := range 2 {
			t.Run(fmt.Sprintf("%s, %d answered", name, answered), func(t *testing.T) {
				t.Parallel()
				is := is.New(t)
				s, r := connected(t)
				chat := s.askQuestions("ses_1", "que_1")
				if answered == 1 {
					s.answerQuestion(chat, "que_1", 0, false, "first")
				}
				s.Locked(func() { s.Questions = map[string]client.Request{} }) // OpenCode is stopping
				s.Happen(s.Durably("ses_1", "message.part.updated", questionTool("ses_1", end))...)
				s.Drained()
				s.restart(r)
				is.True(s.questionRow("que_1").Interrupted)
				is.Equal(len(facts[events.QuestionExpired](s, chat)), 0)
				for i := answered; i < 2; i++ {
					s.answerQuestion(chat, "que_1", i, false, []string{"first", "second"}[i])
				}
				is.True(strings.HasPrefix(texts(s.awaitPrompts(1))[0], answeredPrompt))
			})
		}
	}
}

func TestAnInterruptedQuestionIsDroppedByAnAbortAndWithItsChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	aborted, deleted := s.askQuestions("ses_1", "que_1"), s.askQuestions("ses_2", "que_2")
	s.restart(r)
	s.abortTurn(aborted, "")
	_, err := s.Chats.Delete(t.Context(), chat.Delete{Command: handlers.Command{Actor: events.UserActor("u1")},
		Chat: deleted})
	is.NoErr(err)
	for id, chat := range map[string]string{"que_1": aborted, "que_2": deleted} {
		expect.Eventually(t, id+" expires", func() bool { return s.questionRow(id).Status == projections.QuestionExpired })
		is.True(s.questionRow(id).Reason != "")
		is.Equal(len(facts[events.QuestionExpired](s, chat)), 1)
	}
	is.Equal(s.questionRow("que_1").Reason, "the turn was aborted")
	is.Equal(len(s.Requests("POST", "/reject")), 0) // OpenCode knows of neither
}

func TestAnswersToASubagentsInterruptedQuestionAreForItsSuccessor(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	s.Asking("ses_1")
	s.Session("ses_2", "ses_1")
	s.Happen(bridgetest.Plain("question.asked", bridgetest.Question("que_1", "ses_2")))
	s.Drained()
	s.restart(r)
	chat := s.ChatOf("ses_1")
	is.Equal(s.questionRow("que_1").Chat, chat)
	s.answerBoth(chat, "que_1")
	p := s.awaitPrompts(1)
	is.Equal(p[0].session, "ses_1")
	is.Equal(texts(p), []string{answeredPrompt +
		"\nA subagent had asked. It is gone: call it again, with these answers in its prompt."})
}

func TestAnAbortedQuestionThatOpenCodeKeepsListingIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	chat := s.askQuestions("ses_1", "que_1")
	s.RefuseNext("POST", "/reject", 1, 500) // that it expired does not reach OpenCode
	s.abortTurn(chat, "")
	expect.Eventually(t, "it expires", func() bool { return s.questionRow("que_1").Status == projections.QuestionExpired })
	s.Reconnected(r, func() {})
	is.Equal(len(s.OpenCodeEvents(chat, events.QuestionAsked)), 1)
}
