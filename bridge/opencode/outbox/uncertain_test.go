package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/rule"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// afterLoss starts the next process after the log has lost the events from a sequence on, or nothing for 0. A backup
// that was restored has lost nothing either.
func (s *system) afterLoss(r *bridgetest.Running, from uint64, prepare ...func(*bridgetest.System)) *system {
	s.T.Helper()
	r.Stop()
	s.Forget()
	if from == 0 {
		last, err := s.Log.Last(s.T.Context())
		s.Must(err)
		from = last + 1
	}
	next, after := s.Lost(from)
	for _, f := range prepare {
		f(next)
	}
	next.Start(func(o *outbox.Outbox) {
		o.Ingest.Compare = func(ctx context.Context) error { return o.Hold(ctx, after) }
		o.Ingest.Uncertain = func() uint64 { return after }
	}).Connected()
	return &system{next}
}

// firstOf returns the sequence of the first event of a kind in a chat.
func (s *system) firstOf(chatID string, d events.Data) uint64 {
	s.T.Helper()
	return s.Events(events.ChatSubject(chatID, d.Kind()))[0].Seq
}

func (s *system) message(id string) projections.ShownMessage {
	s.T.Helper()
	m, known, err := s.Model.Message(s.T.Context(), id)
	s.Must(err)
	if !known {
		s.T.Fatalf("message %s is not known", id)
	}
	return m
}

func TestAMessageWhoseSendingIsLostIsNotSentAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	fault := expect.CountFault(t, "messages", "found with OpenCode", "held", "sent again")
	s := newSystem(t)
	chatID := s.Chat()
	ids := s.queueMessages(chatID, "answered", "lost", "waits")
	r := s.Start()
	first := s.awaitPrompts(1)[0]
	s.Happen(s.Durably(first.session, "message.part.updated", fmt.Sprintf(
		`{"sessionID":%q,"part":{"id":%q,"messageID":%q,"sessionID":%[1]q,"type":"text","text":"answered"}}`, first.session,
		first.Parts[0].ID, first.MessageID))...)
	s.Answer(first.session, first.MessageID)
	second := s.awaitPrompts(2)[1]
	s.Drained()
	s = s.afterLoss(r, s.firstOf(chatID, events.MessageSending{}))
	s.Drained()
	is.Equal(texts(s.promptsReceived()), []string{"answered", "lost"})

	for i, p := range []receivedPrompt{first, second} { // OpenCode has these
		m := s.message(ids[i])
		is.Equal([]string{m.UserStatus, m.EngineMessage, m.Session, m.Held},
			[]string{"delivered", p.MessageID, p.session, ""})
	}
	expect.Contains(t, string(s.message(ids[0]).Parts), first.Parts[0].ID)
	is.Equal(facts[events.TurnLost](s, chatID), []events.TurnLost{{Session: second.session}}) // nothing has answered it
	held := s.message(ids[2])
	is.Equal([]string{held.UserStatus, held.EngineMessage}, []string{"pending", ""})
	is.True(held.IsHeldByLoss())
	all, err := s.Model.Messages(t.Context(), chatID)
	is.NoErr(err)
	is.Equal(len(all), 4) // with the answer
	row, _, err := s.Model.Chat(t.Context(), chatID)
	is.NoErr(err)
	is.Equal(row.Turn, projections.TurnUser)
	fault.Tried()
	fault.Saw(len(ids), 2, 1, len(s.promptsReceived())-2)

	s.Submit(chatID, "next") // which does not release it
	is.Equal(texts(s.awaitPrompts(3))[2], "next")
	s.Drained()
	is.Equal(len(s.promptsReceived()), 3)
	s.change(chat.ChangeMessage{Chat: chatID, Message: ids[2], Delivery: events.DeliverySteer})
	is.Equal(texts(s.awaitPrompts(4))[3], "waits")
}

func TestADeliveredMessageIsNotSentAgainAfterALoss(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	chatID := s.Chat()
	s.queueMessages(chatID, "hello")
	r := s.Start()
	session := s.awaitPrompts(1)[0].session
	expect.Eventually(t, "it is delivered", func() bool { return len(facts[events.MessageDelivered](s, chatID)) == 1 })
	s.Drained()
	s = s.afterLoss(r, 0)
	s.Drained()
	is.Equal(texts(s.promptsReceived()), []string{"hello"})
	is.Equal(facts[events.TurnLost](s, chatID), []events.TurnLost{{Session: session}}) // for a person to see
	s.Submit(chatID, "next")
	is.Equal(texts(s.awaitPrompts(2)), []string{"hello", "next"})
}

// The call of a tool submits a message again under the same id.
func TestAMessageThatIsSubmittedAgainAfterALossIsNotSentAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	chatID := s.Chat()
	submit := func() {
		_, _, err := s.Chats.SubmitMessage(t.Context(), chat.SubmitMessage{
			Command: handlers.Command{Actor: events.UserActor("u1")}, Chat: chatID, Message: "m1",
			Parts: []events.Part{{Type: "text", Text: "hello"}},
		})
		is.NoErr(err)
	}
	submit()
	r := s.Start()
	p := s.awaitPrompts(1)[0]
	s.Answer(p.session, p.MessageID)
	s.Drained()
	s = s.afterLoss(r, s.firstOf(chatID, events.MessageSubmitted{}))
	submit()
	expect.Eventually(t, "it is delivered", func() bool { return len(facts[events.MessageDelivered](s, chatID)) == 1 })
	s.Drained()
	is.Equal(texts(s.promptsReceived()), []string{"hello"})
	is.Equal([]string{s.message("m1").EngineMessage, s.message("m1").Session}, []string{p.MessageID, p.session})
	is.Equal(len(facts[events.TurnLost](s, chatID)), 0) // it was answered
}

func TestAMessageOfADeletedAgentIsFoundAfterALoss(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	agent, _, err := s.Records.Save(t.Context(), record.Save{Collection: rule.Agents, New: true,
		Set: map[string]json.RawMessage{"name": json.RawMessage(`"helper"`)}})
	is.NoErr(err)
	chatID, _, err := s.Chats.Create(t.Context(), chat.Create{Title: "t", User: "u1", Agent: agent})
	is.NoErr(err)
	id := s.queueMessages(chatID, "hello")[0]
	r := s.Start()
	s.awaitPrompts(1)
	s.Drained()
	s = s.afterLoss(r, s.firstOf(chatID, events.MessageSending{}), func(next *bridgetest.System) {
		_, err := next.Records.Delete(t.Context(), record.Delete{Collection: rule.Agents, Record: agent})
		is.NoErr(err)
	})
	expect.Eventually(t, "it is delivered", func() bool { return s.message(id).UserStatus == "delivered" })
	is.Equal(len(s.promptsReceived()), 1)
}

// A restored backup has no sessions of OpenCode.
func TestAMessageThatWasBeingSentIsHeldIfOpenCodeHasLostItsSession(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	chatID := s.Chat()
	id := s.queueMessages(chatID, "hello")[0]
	r := s.Start()
	session := s.awaitPrompts(1)[0].session
	expect.Eventually(t, "it is delivered", func() bool { return len(facts[events.MessageDelivered](s, chatID)) == 1 })
	s.Drained()
	from := s.firstOf(chatID, events.MessageSending{}) + 1
	s.Happen(s.Durably(session, "session.deleted", fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q}}`, session, session))...)
	s = s.afterLoss(r, from)
	s.Drained()
	is.Equal(len(s.promptsReceived()), 1)
	is.True(s.message(id).IsHeldByLoss())
	s.change(chat.ChangeMessage{Chat: chatID, Message: id, Delivery: events.DeliverySteer})
	again := s.awaitPrompts(2)[1]
	is.True(again.session != session)
	expect.Eventually(t, "it is delivered", func() bool { return s.message(id).UserStatus == "delivered" })
}

func TestAnApprovalBeforeALossDoesNotResumeATurn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	s.Asking("ses_1", "per_approved", "per_undecided", "per_referred", "per_ran")
	chatID := s.ChatOf("ses_1")
	r.Stop()
	for _, id := range []string{"per_referred", "per_ran"} {
		e, err := events.New(chatID, events.ActorPolicy, events.PermissionReferred{Permission: id})
		is.NoErr(err)
		_, err = s.Log.Append(t.Context(), e)
		is.NoErr(err)
	}
	s.Decide("per_approved", events.Authorized, "")
	s.Happen(s.Durably("ses_1", "message.part.updated", bridgetest.Tool("ses_1", "per_ran",
		`{"status":"completed","input":{"command":"date"},"output":"","title":"","metadata":{},"time":{"start":1,"end":2}}`))...)
	s = s.afterLoss(r, 0)
	s.Drained()
	is.Equal(len(s.promptsReceived()), 0)
	for _, id := range []string{"per_approved", "per_undecided", "per_ran"} {
		is.Equal(s.Permission(id).Status, events.Expired) // id
	}
	is.Equal(s.Permission("per_referred").Status, events.Draft)
	s.Decide("per_referred", events.Authorized, "") // by a person, who knows of the loss
	is.Equal(texts(s.awaitPrompts(1)), []string{outbox.ContinuePrompt})
}

func TestWhatWasRequestedBeforeALossIsNotDone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	chatID := s.askQuestions("ses_1", "que_1")
	r.Stop()
	s.answerBoth(chatID, "que_1")
	for _, d := range []events.Data{
		events.RevertRequested{Message: "msg_0"}, events.ForkRequested{Chat: "into"}, events.AbortRequested{},
	} {
		e, err := events.New(chatID, events.UserActor("u1"), d)
		is.NoErr(err)
		_, err = s.Log.Append(t.Context(), e)
		is.NoErr(err)
	}
	s = s.afterLoss(r, 0)
	s.Drained()
	is.Equal(len(s.promptsReceived()), 0)
	is.Equal(s.questionRow("que_1").Status, projections.QuestionExpired)
	is.Equal(len(facts[events.EffectFailed](s, chatID)), 2)
	expect.Eventually(t, "the abort is done", func() bool {
		open, err := s.Model.PendingEffects(t.Context(), chat.DefaultEngine)
		s.Must(err)
		return len(open) == 0
	})
	is.Equal(len(facts[events.EffectDone](s, chatID)), 1)
}
