package outbox_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/events"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
)

func (s *system) revert(chatID, message string) {
	s.T.Helper()
	_, err := s.Chats.Revert(s.T.Context(), chat.Revert{Chat: chatID, Message: message})
	s.Must(err)
}

func TestARevertIsTriedUntilOpenCodeTakesItOrRefuses(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	s.Session("ses_1", "")
	s.Drained()
	chat := s.ChatOf("ses_1")
	reverts := func(n int) []bridgetest.Request {
		t.Helper()
		expect.Eventually(t, "it is tried", func() bool { return len(s.Requests("POST", "/revert")) >= n })
		return s.Requests("POST", "/revert")
	}
	s.RefuseNext("POST", "/revert", 1, 500)
	s.revert(chat, "msg_1")
	all := reverts(2)
	is.Equal(all[1].Path, "/session/ses_1/revert")
	is.Equal(all[1].Body, `{"messageID":"msg_1"}`)

	s.RefuseNext("POST", "/revert", 1, 400)
	s.revert(chat, "msg_2") // refused for good
	s.revert(chat, "msg_3")
	is.Equal(reverts(4)[3].Body, `{"messageID":"msg_3"}`)
	expect.Contains(t, r.Logged.String(), "opencode refuses")

	s.Disconnect()
	expect.Eventually(t, "the bridge notices", func() bool { return !r.Ingest.Condition().Connected })
	s.revert(chat, "")
	s.Reconnect()
	expect.Eventually(t, "it is undone", func() bool { return len(s.Requests("POST", "/ses_1/unrevert")) == 1 })
	is.Equal(len(s.Requests("POST", "/revert")), 4)
}

func TestARevertStopsTheTurnThatRuns(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := connected(t)
	s.Asking("ses_1", "per_1")
	s.Drained()
	s.RefuseNext("POST", "/revert", 1, 409)
	s.revert(s.ChatOf("ses_1"), "msg_1")
	expect.Eventually(t, "it is taken", func() bool { return len(s.Requests("POST", "/revert")) == 2 })
	is.Equal(len(s.Requests("POST", "/ses_1/abort")), 1)
	is.Equal(s.Permission("per_1").Status, events.Expired)

	s.RefuseNext("POST", "/unrevert", 1, 409) // an unrevert stops no turn
	s.revert(s.ChatOf("ses_1"), "")
	s.revert(s.ChatOf("ses_1"), "")
	expect.Eventually(t, "the next is taken", func() bool { return len(s.Requests("POST", "/unrevert")) == 2 })
	is.Equal(len(s.Requests("POST", "/abort")), 1)
}

func TestAMessageWaitsForTheRevertBeforeIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := connected(t)
	chat := s.Chat("hello")
	p := s.awaitPrompts(1)[0]
	s.Answer(p.session, p.MessageID)
	s.Drained()
	arrived, hold := make(chan bool), make(chan bool)
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	s.RefuseWith(func(r bridgetest.Request) int {
		if strings.HasSuffix(r.Path, "/revert") {
			arrived <- true
			<-hold
		}
		return 0
	})
	s.revert(chat, "msg_1")
	<-arrived
	s.Submit(chat, "instead")
	for range 20 { // a while
		s.Drained()
	}
	is.Equal(len(s.promptsReceived()), 1)
	release()
	s.awaitPrompts(2)
}

func (s *system) deleteChat(chatID string) {
	s.T.Helper()
	_, err := s.Chats.Delete(s.T.Context(), chat.Delete{Chat: chatID})
	s.Must(err)
}

func TestNothingIsDeliveredInADeletedChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := connected(t)
	chat := s.Chat("hello")
	p := s.awaitPrompts(1)[0] // its turn does not end
	s.Happen(bridgetest.Plain("permission.asked", bridgetest.PermissionRequest("per_1", p.session)))
	s.Submit(chat, "later")
	s.Drained()
	s.deleteChat(chat)
	expect.Eventually(t, "the turn is stopped", func() bool {
		return len(s.Requests("POST", "/"+p.session+"/abort")) == 1
	})
	expect.Eventually(t, "its ask is settled", func() bool {
		return s.Permission("per_1").Status == events.Expired
	})
	s.Answer(p.session, p.MessageID)
	s.Chat("another")
	s.awaitPrompts(2)
	s.Drained()
	is.Equal(texts(s.promptsReceived()), []string{"hello", "another"})
}

func TestAChatDeletedWhileItsMessageIsSentIsStopped(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	arrived, hold := make(chan bool), make(chan bool)
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	s.RefuseWith(func(r bridgetest.Request) int {
		if strings.HasSuffix(r.Path, "/prompt_async") {
			arrived <- true
			<-hold
		}
		return 0
	})
	s.Start().Connected()
	chat := s.Chat("hello")
	<-arrived
	s.deleteChat(chat)
	for range 20 { // a while
		s.Drained()
	}
	is.Equal(len(s.Requests("POST", "/abort")), 0) // not before the message is sent
	release()
	expect.Eventually(t, "it is stopped", func() bool { return len(s.Requests("POST", "/abort")) == 1 })
	is.Equal(len(s.promptsReceived()), 1)
}

func TestAMessageOfADeletedChatIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	arrived, hold := make(chan bool, 9), make(chan bool)
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	s.RefuseWith(func(r bridgetest.Request) int {
		if strings.HasSuffix(r.Path, "/prompt_async") && strings.Contains(r.Body, "hello") {
			arrived <- true
			<-hold
			return 500
		}
		return 0
	})
	s.Start().Connected()
	chat := s.Chat("hello")
	<-arrived
	s.deleteChat(chat)
	s.Drained()
	release()
	s.Chat("another")
	s.awaitPrompts(2)
	for range 20 { // a while
		s.Drained()
	}
	is.Equal(texts(s.promptsReceived()), []string{"hello", "another"})
	is.Equal(len(facts[events.MessageFailed](s, chat)), 0)
}

func TestRequestsOverTheAPIAreNotSentToOpenCode(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	s.Asking("ses_1", "per_1")
	s.Drained()
	chat := s.ChatOf("ses_1")
	intent := func() string {
		t.Helper()
		id, _, err := s.Permissions.Submit(t.Context(), permission.Submit{Chat: chat, Type: "bash",
			Metadata: []byte(`{"command":"date"}`), Session: "ses_1"})
		is.NoErr(err)
		return id
	}
	decide := func(id string, d events.Decision) {
		t.Helper()
		_, err := s.Permissions.Decide(t.Context(), permission.Decide{Chat: chat, Permission: id, Decision: d})
		is.NoErr(err)
	}
	waiting, decided := intent(), intent()
	decide(decided, events.Authorized)
	s.Reconnected(r, func() { s.Forget() })
	s.abortTurn(chat, "")
	expect.Eventually(t, "the ask of OpenCode is settled", func() bool {
		return s.Permission("per_1").Status == events.Expired
	})
	decide(waiting, events.Denied)
	for range 20 { // a while
		s.Drained()
	}
	for _, e := range s.Events(events.ChatSubject(chat, "permission.*")) {
		is.True(e.Subject.Kind == "permission.decided" || e.Subject.Kind == "permission.requested" ||
			strings.Contains(string(e.Data), "per_1"))
	}
	for _, request := range s.Requests("POST", "/reply") {
		is.Equal(request.Path, "/permission/per_1/reply")
	}
}

func TestListsAreReadFromOpenCode(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	chat, session := s.startForkable()
	diff, err := r.Diff(t.Context(), chat, "")
	is.NoErr(err)
	is.Equal(string(diff), `[{"file": "f"}]`) // byte for byte
	is.Equal(len(s.Requests("GET", "/"+session+"/diff")), 1)
	todo, err := r.Todo(t.Context(), chat) // OpenCode has lost the session
	is.NoErr(err)
	is.Equal(string(todo), "[]")

	_, err = r.Todo(t.Context(), "nobody")
	is.True(errors.Is(err, outbox.ErrUnknownChat))
	s.RefuseNext("GET", "/diff", 1, 500)
	_, err = r.Diff(t.Context(), chat, "msg_1")
	is.True(errors.Is(err, outbox.ErrUnavailable))
	s.Disconnect()
	expect.Eventually(t, "the bridge notices", func() bool { return !r.Ingest.Condition().Connected })
	_, err = r.Todo(t.Context(), chat)
	is.True(errors.Is(err, outbox.ErrUnavailable))
}
