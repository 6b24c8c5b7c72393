package outbox_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/handlers/chat"
)

// startForkable creates a chat with one completed turn, and returns it and its session.
func (s *system) startForkable() (chat, session string) {
	s.T.Helper()
	chat = s.Chat("hello")
	p := s.awaitPrompts(1)[0]
	s.Answer(p.session, p.MessageID)
	s.Drained()
	return chat, p.session
}

func (s *system) fork(chatID string) (into string) {
	s.T.Helper()
	into, _, err := s.Chats.Fork(s.T.Context(), chat.Fork{Chat: chatID})
	s.Must(err)
	return into
}

// OpenCode makes a copy, but its response is lost.
func TestAnInterruptedForkLeavesNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := connected(t)
	chat, session := s.startForkable()
	before := s.metadata(session)
	copied, hold := make(chan string, 2), make(chan bool)
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	s.RefuseWith(func(r bridgetest.Request) int {
		if !strings.HasSuffix(r.Path, "/fork") || len(s.Requests("POST", "/fork")) > 1 {
			return 0
		}
		q, _ := http.NewRequest("POST", "/", nil)
		q.SetPathValue("id", session)
		var answer any
		s.Locked(func() { answer, _ = s.ForkSession(q) })
		var first client.Session
		_ = json.Unmarshal(answer.(json.RawMessage), &first)
		copied <- first.ID
		<-hold
		return 500
	})
	into := s.fork(chat)
	s.Submit(into, "goes on")
	first := <-copied
	s.Drained()
	is.Equal(s.ChatOf(first), into) // it is known before the try returns
	is.Equal(len(facts[events.SessionBound](s, into)), 0)
	is.Equal(len(s.promptsReceived()), 1) // the message in the new chat waits
	release()

	p := s.awaitPrompts(2)[1]
	bound := facts[events.SessionBound](s, into)
	is.Equal(len(bound), 1)
	is.Equal(bound[0].Session, p.session)
	is.True(bound[0].Session != first)
	s.Drained()
	shown, err := s.Model.Messages(t.Context(), into)
	is.NoErr(err)
	is.Equal(len(shown), 3) // the two copied ones, once, and the new one
	is.Equal(s.metadata(session), before)
	row, _, err := s.Model.Chat(t.Context(), chat)
	is.NoErr(err)
	is.Equal(row.Session, session)
	chats, err := s.Model.Chats(t.Context(), 10, 0)
	is.NoErr(err)
	is.Equal(len(chats), 2) // no session was adopted
}

func (s *system) metadata(session string) (metadata string) {
	s.Locked(func() { metadata = string(s.Sessions[session].Metadata) })
	return metadata
}

func TestAForkOfAChatInWhichNothingHasRunIsAnEmptyChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := connected(t)
	into := s.fork(s.Chat())
	s.Submit(into, "hello")
	p := s.awaitPrompts(1)[0]
	is.Equal(s.ChatOf(p.session), into)
	is.Equal(len(s.Requests("POST", "/fork")), 0)
}
