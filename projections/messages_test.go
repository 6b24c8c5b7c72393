package projections_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
	"pocketcoder/projections/timeline"
)

func shown(t testing.TB, m *projections.Model) []projections.ShownMessage {
	t.Helper()
	messages, err := m.Messages(t.Context(), chatID)
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

func textPart(s *eventBuilder, message, id, text string) events.Event {
	return s.opencode(true, "message.part.updated",
		fmt.Sprintf(`{"sessionID":%q,"part":{"id":%q,"messageID":%q,"sessionID":%q,"type":"text","text":%q}}`, ses, id,
			message, ses, text))
}

func TestMessageIsOneRowFromSubmissionToEcho(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.created(), s.submitted("m1"))
	is.Equal(describe(t, shown(t, m)[0]), `user pending "words of m1"`)
	feed(t, m, s.own(events.SessionBound{Session: ses, Directory: directed}), s.sending("m1", msg1))
	is.Equal(describe(t, shown(t, m)[0]), `user sending "words of m1"`)
	is.Equal(shown(t, m)[0].EngineMessage, msg1)
	feed(t, m, s.userMessage(msg1), textPart(s, msg1, "prt_m1", "as OpenCode has it"))
	// it has the message, whatever we have noted
	is.Equal(describe(t, shown(t, m)[0]), `user delivered "as OpenCode has it"`)
	feed(t, m, s.delivered("m1", msg1), s.userMessage(msg1))
	is.Equal(len(shown(t, m)), 1)
}

func TestMessageTypedElsewhereIsShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.created(), s.userMessage("msg_typed"), textPart(s, "msg_typed", "prt_1", "typed"))
	is.Equal(describe(t, shown(t, m)[0]), `user delivered "typed"`)
	is.Equal(shown(t, m)[0].ID, store.RecordID("msg_typed"))
	feed(t, m, s.failed(ses, "UnknownError"))
	is.Equal(describe(t, shown(t, m)[0]), `user failed "typed" !provider:UnknownError`)
}

func TestContinuePromptIsNobodysMessage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, s.own(events.MessageSubmitted{Message: "m2", Resumes: "per_1",
		Parts: []events.Part{{Type: "text", Text: "go on"}}}),
		s.sending("m2", msg2), s.delivered("m2", msg2), s.userMessage(msg2))
	is.Equal(describe(t, shown(t, m)[1]), `system delivered "go on"`)
}

func TestUndeliverableMessageSaysWhy(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	failed := s.own(events.MessageFailed{Message: "m1", Domain: "infrastructure", Error: "OpenCode is not there"})
	feed(t, m, s.created(), s.submitted("m1"), failed)
	got := shown(t, m)[0]
	is.Equal(got.UserStatus, "failed")
	is.Equal(string(got.ErrorPayload), `{"name":"MessageFailed","message":"OpenCode is not there"}`)
	feed(t, m, s.submitted("m2"), s.sending("m2", msg2),
		s.own(events.MessageFailed{Message: "m2", Domain: "infrastructure", Error: "no"}), s.userMessage(msg2))
	is.Equal(describe(t, shown(t, m)[1]), `user delivered "words of m2"`) // it got there after all
	feed(t, m, s.own(events.MessageFailed{Message: "m2", Domain: "infrastructure", Error: "no"}))
	is.Equal(shown(t, m)[1].UserStatus, "delivered") // and what is there stays there
}

func TestMessageOpenCodeRefusesIsNotDelivered(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.created(), s.submitted("m1"), s.sending("m1", msg1), s.failed(ses, "UnknownError"),
		s.delivered("m1", msg1), s.failed(ses, "UnknownError"))
	is.Equal(describe(t, shown(t, m)[0]), `user failed "words of m1" !provider:UnknownError`)
	is.Equal(chat(t, m).Turn, "user")
}

func TestLateErrorOfTheMessageBeforeIsTakenBack(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, s.failed(ses, "UnknownError"), s.submitted("m2"), s.sending("m2", msg2), s.failed(ses, "UnknownError"),
		s.delivered("m2", msg2), s.userMessage(msg2))
	is.Equal(describe(t, shown(t, m)[1]), `user failed "words of m2" !provider:UnknownError`) // as far as anyone can tell
	feed(t, m, s.assistant(ses, "msg_a", msg2, ""))
	is.Equal(describe(t, shown(t, m)[1]), `user delivered "words of m2"`)
	is.Equal(describe(t, shown(t, m)[0]), `user failed "words of m1" !provider:UnknownError`)
}

func TestLostTurnFailsItsMessages(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, s.own(events.TurnLost{Session: ses}))
	// nothing had answered it
	is.Equal(describe(t, shown(t, m)[0]), `user delivered "words of m1" !infrastructure:TurnLost`)
	// another word about it answers nothing either
	feed(t, m, s.userMessage(msg1))
	is.Equal(describe(t, shown(t, m)[0]), `user delivered "words of m1" !infrastructure:TurnLost`)
	feed(t, m, s.submitted("m2"), s.sending("m2", msg2), s.delivered("m2", msg2), s.assistant(ses, "msg_a", msg2, ""),
		s.own(events.TurnLost{Session: ses}))
	is.Equal(describe(t, shown(t, m)[1]), `user delivered "words of m2"`)
	is.Equal(describe(t, shown(t, m)[2]), `assistant failed !infrastructure:TurnLost`)
	feed(t, m, s.assistant(ses, "msg_a", msg2, ended))
	is.Equal(describe(t, shown(t, m)[2]), `assistant completed`) // OpenCode's word counts when it has one
}

func TestRemovedMessagesAndPartsStayRemoved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	answer, text := s.assistant(ses, "msg_a", msg1, ended), textPart(s, "msg_a", "prt_a", "first")
	other := textPart(s, "msg_a", "prt_b", "second")
	noPart := s.opencode(true, "message.part.removed",
		fmt.Sprintf(`{"sessionID":%q,"messageID":"msg_a","partID":"prt_a"}`, ses))
	feed(t, m, s.created(), answer, text, other, noPart, text)
	is.Equal(describe(t, shown(t, m)[0]), `assistant completed "second"`)
	feed(t, m, s.opencode(true, "message.removed", fmt.Sprintf(`{"sessionID":%q,"messageID":"msg_a"}`, ses)), answer)
	is.Equal(len(shown(t, m)), 0)
}

func TestPartRemovedBeforeItIsSeenFailsNoQuery(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.created(), s.submitted("m1"), s.sending("m1", msg1), s.delivered("m1", msg1),
		s.assistant(ses, "msg_a", msg1, ended), s.opencode(true, "message.part.removed",
			fmt.Sprintf(`{"sessionID":%q,"messageID":"msg_a","partID":"prt_a"}`, ses)),
		s.own(events.RevertRequested{Message: msg1}))
	is.Equal(describe(t, shown(t, m)[1]), `assistant completed`)
	is.NoErr(m.View(t.Context(), func(db dbx.Builder, _ uint64) error {
		chat := timeline.Chat{Chat: projections.Chat{Record: store.Record{ID: chatID}, Session: ses}}
		sidebar, err := timeline.ReadSidebar(t.Context(), db, chat)
		is.Equal([]any{sidebar.Undo.Message, sidebar.Undo.Files}, []any{msg1, 0})
		return err
	}))
}

func TestPartsAreInTheOrderOfTheirIDs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.created(), s.assistant(ses, "msg_a", msg1, ""), textPart(s, "msg_a", "prt_b", "two"),
		textPart(s, "msg_a", "prt_a", "one"), textPart(s, "msg_a", "prt_B", "zero"))
	is.Equal(describe(t, shown(t, m)[0]), `assistant processing "zero" "one" "two"`) // bytewise
}

func TestUsageCountsEveryMessageOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	spent := func(id string, cost float64, in int) events.Event {
		return s.assistant(ses, id, msg1, fmt.Sprintf(`,"providerID":"p","modelID":"m","cost":%g,"tokens":{"input":%d,"output":1,"reasoning":2,"cache":{"read":3,"write":4}}`, cost, in))
	}
	feed(t, m, s.created(), spent("msg_a", 0.25, 10), spent("msg_a", 0.5, 20), spent("msg_b", 0.25, 5),
		s.opencode(true, "message.removed", fmt.Sprintf(`{"sessionID":%q,"messageID":"msg_b"}`, ses)))
	got, err := m.UsageByModel(t.Context(), chatID)
	is.NoErr(err)
	is.Equal(len(got), 1)
	u := got[0]
	// removed is spent all the same
	is.Equal([]any{u.Provider, u.Model, u.Messages, u.Cost}, []any{"p", "m", int64(2), 0.75})
	is.Equal([]int64{u.TokensInput, u.TokensOutput, u.TokensReasoning, u.TokensCacheRead, u.TokensCacheWrite},
		[]int64{25, 2, 4, 6, 8})
}

func TestUsageFollowsAMessageToAnotherModel(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	spent := func(model string, cost float64) events.Event {
		return s.assistant(ses, "msg_a", msg1, fmt.Sprintf(`,"providerID":"p","modelID":%q,"cost":%g,"tokens":{"input":1}`,
			model, cost))
	}
	usage := func() (all []string) {
		t.Helper()
		rows, err := m.UsageByModel(t.Context(), chatID)
		is.NoErr(err)
		for _, u := range rows {
			all = append(all, fmt.Sprint(u.Model, " ", u.Messages, " ", u.Cost, " ", u.TokensInput))
		}
		return all
	}
	feed(t, m, s.created(), spent("m1", 0.1), spent("m2", 0.3))
	is.Equal(usage(), []string{"m2 1 0.3 1"})
	feed(t, m, spent("m1", 0.7))
	is.Equal(usage(), []string{"m1 1 0.7 1"})
}

func TestOutboxHoldsWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	outbox := func() string {
		t.Helper()
		messages, err := m.PendingMessages(t.Context())
		is.NoErr(err)
		var lines []string
		for _, o := range messages {
			lines = append(lines, fmt.Sprintf("%s %s %s %s free=%t", o.ID, o.UserStatus, o.Bound, o.EngineParts, o.Free))
		}
		return strings.Join(lines, "\n")
	}
	feed(t, m, s.created(), s.submitted("m1"))
	is.Equal(outbox(), "m1 pending  [] free=true") // no session yet
	feed(t, m, s.own(events.SessionBound{Session: ses, Directory: directed}), s.sending("m1", msg1), s.submitted("m2"))
	is.Equal(outbox(), "m1 sending ses_own [\"prt_m1\"] free=true\nm2 pending ses_own [] free=false")
	feed(t, m, s.delivered("m1", msg1))
	is.Equal(outbox(), "m2 pending ses_own [] free=false") // m1 waits for its answer
	feed(t, m, s.assistant(ses, "msg_a", msg1, ""), s.status(ses, "busy"))
	is.Equal(outbox(), "m2 pending ses_own [] free=false")
	feed(t, m, s.assistant(ses, "msg_a", msg1, ended))
	is.Equal(outbox(), "m2 pending ses_own [] free=false") // there may be another step
	feed(t, m, s.status(ses, "idle"))
	is.Equal(outbox(), "m2 pending ses_own [] free=true")
	first, err := m.PendingMessages(t.Context())
	is.NoErr(err)
	is.Equal(string(first[0].Submitted), "") // many large messages may wait
	parts, err := m.SubmittedParts(t.Context(), first[0].ID)
	is.NoErr(err)
	is.Equal(parts, []events.Part{{Type: "text", Text: "words of m2"}})
	is.Equal([]string{first[0].ChatTitle, first[0].Engine, first[0].Directory}, []string{"Chat", engine, directed})
}

func TestUnfinishedTurnsAreThoseThatMayBeLost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	unfinished := func() (ids []string) {
		t.Helper()
		sessions, err := m.UnfinishedTurns(t.Context())
		is.NoErr(err)
		for _, x := range sessions {
			ids = append(ids, x.ID)
		}
		return ids
	}
	feed(t, m, s.created(), s.own(events.SessionBound{Session: ses, Directory: directed}), s.submitted("m1"),
		s.sending("m1", msg1))
	is.Equal(unfinished(), nil) // it will be sent again
	feed(t, m, s.delivered("m1", msg1))
	is.Equal(unfinished(), []string{ses})
	unanswered, err := m.UnansweredMessages(t.Context())
	is.NoErr(err)
	is.Equal(len(unanswered), 1)
	is.Equal(unanswered[0].ID, "m1")
	feed(t, m, s.status(ses, "busy"))
	is.Equal(unfinished(), []string{ses})
	feed(t, m, s.assistant(ses, "msg_a", msg1, ""))
	unanswered, err = m.UnansweredMessages(t.Context())
	is.NoErr(err)
	is.Equal(len(unanswered), 0)
	is.Equal(unfinished(), []string{ses})
	feed(t, m, s.assistant(ses, "msg_a", msg1, ended), s.status(ses, "idle"))
	is.Equal(unfinished(), nil)
}

func TestSessionsKnowTheirPlaceInOpenCodesHistory(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	// a type we do not follow
	feed(t, m, s.child(), s.opencode(true, "session.next.prompted", fmt.Sprintf(`{"sessionID":%q}`, ses)))
	got, found, err := m.Session(t.Context(), ses)
	is.NoErr(err)
	is.True(found)
	is.Equal([]any{got.Seq, got.Directory, got.Engine, got.Root}, []any{int64(2), directed, engine, ses})
	all, err := m.Sessions(t.Context(), engine)
	is.NoErr(err)
	is.Equal(len(all), 2)
	is.Equal([]string{all[0].ID, all[0].Parent, all[0].Chat}, []string{child, ses, chatID})
	subagent, _, err := m.Session(t.Context(), child)
	is.NoErr(err)
	is.Equal(subagent.Root, ses)
	feed(t, m, s.opencode(true, "session.deleted", fmt.Sprintf(`{"sessionID":%q}`, child)))
	all, err = m.Sessions(t.Context(), engine)
	is.NoErr(err)
	is.Equal(len(all), 1)
}

// Whoever submits a message chooses its id.
func TestMessageUnderAnotherMessagesIDIsNone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.created(), in(t, "chat2", "user:eve", events.ChatCreated{Title: "Other", Engine: engine}),
		s.submitted("m1"), s.assistant(ses, "msg_a", msg1, ended))
	before, _ := rows[projections.Message](t, m, "messages")
	others, _ := rows[projections.Chat](t, m, "chats")
	for _, id := range []string{"m1", store.RecordID("msg_a")} {
		feed(t, m, in(t, "chat2", "user:eve", events.MessageSubmitted{Message: id,
			Parts: []events.Part{{Type: "text", Text: "mine"}}}))
	}
	after, bad := rows[projections.Message](t, m, "messages")
	is.Equal(after, before)
	is.Equal(bad, 0)
	chats, _ := rows[projections.Chat](t, m, "chats")
	is.Equal(chats, others)
	outbox, err := m.PendingMessages(t.Context())
	is.NoErr(err)
	is.Equal(len(outbox), 1)
	is.Equal(outbox[0].Chat, chatID)

	feed(t, m, in(t, "chat2", "engine:oc1", events.MessageSending{Message: "m1", Session: "ses_2",
		EngineMessage: "msg_x"}),
		in(t, "chat2", "engine:oc1", events.MessageDelivered{Message: "m1"}),
		in(t, "chat2", "engine:oc1", events.MessageFailed{Message: "m1"}))
	after, bad = rows[projections.Message](t, m, "messages")
	is.Equal(after, before)
	is.Equal(bad, 3)

	for id, want := range map[string]string{"m1": chatID, store.RecordID("msg_a"): chatID, "m2": ""} {
		chat, ok, err := m.ChatOf(t.Context(), "messages", id)
		is.NoErr(err)
		is.Equal(chat, want)
		is.Equal(ok, want != "")
	}
}
