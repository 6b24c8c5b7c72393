package opencode

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/handlers/chat"
)

// become makes a durable event true and streams it; the lock is held.
func (o *outside) become(session, typ, properties string) {
	for _, f := range o.durablyLocked(session, typ, properties) {
		o.hold(f)
		o.stream(f)
	}
}

func (o *outside) updateSession(r *http.Request) (any, int) {
	var in struct{ Metadata json.RawMessage }
	decode(r, &in)
	s, ok := o.sessions[r.PathValue("id")]
	if !ok {
		return nil, 404
	}
	info := fmt.Sprintf(`{"id":%q,"directory":%q,"title":%q,"metadata":%s}`, s.ID, s.Directory, s.Title, in.Metadata)
	o.become(s.ID, "session.updated", fmt.Sprintf(`{"sessionID":%q,"info":%s}`, s.ID, info))
	return json.RawMessage(info), 200
}

func (o *outside) deleteSession(r *http.Request) (any, int) {
	id := r.PathValue("id")
	if _, ok := o.sessions[id]; !ok {
		return nil, 404
	}
	o.become(id, "session.deleted", fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q}}`, id, id))
	return true, 200
}

// messages are those of a session, as the history tells.
func (o *outside) messages(session string) []json.RawMessage {
	list := []json.RawMessage{}
	for _, h := range o.history {
		var e struct {
			Session string `json:"aggregate_id"`
			Type    string
			Data    struct {
				MessageID string
				Info      json.RawMessage
			}
		}
		_ = json.Unmarshal(h, &e)
		switch {
		case e.Session != session:
		case e.Type == "message.updated.1":
			list = append(list, fmt.Appendf(nil, `{"info":%s,"parts":[]}`, e.Data.Info))
		case e.Type == "message.removed.1":
			kept := list[:0]
			for _, m := range list {
				if !strings.Contains(string(m), `"id":"`+e.Data.MessageID+`"`) {
					kept = append(kept, m)
				}
			}
			list = kept
		}
	}
	return list
}

func (o *outside) message(r *http.Request) (any, int) {
	for _, m := range o.messages(r.PathValue("id")) {
		if strings.Contains(string(m), `"id":"`+r.PathValue("message")+`"`) {
			return m, 200
		}
	}
	return nil, 404
}

func (o *outside) deleteMessage(r *http.Request) (any, int) {
	session := r.PathValue("id")
	o.become(session, "message.removed", fmt.Sprintf(`{"sessionID":%q,"messageID":%q}`, session, r.PathValue("message")))
	return true, 200
}

func (o *outside) forkSession(r *http.Request) (any, int) {
	s, ok := o.sessions[r.PathValue("id")]
	if !ok {
		return nil, 404
	}
	id := client.NewID("ses", time.Now())
	info := fmt.Sprintf(`{"id":%q,"directory":%q,"title":"t (fork #1)","metadata":%s}`, id, s.Directory, s.Metadata)
	o.become(id, "session.created", fmt.Sprintf(`{"sessionID":%q,"info":%s}`, id, info))
	for _, m := range o.messages(s.ID) {
		var of client.Message
		_ = json.Unmarshal(m, &of)
		copied := strings.NewReplacer(s.ID, id, of.Info.ID, client.NewID("msg", time.Now())).Replace(string(of.Info.Raw))
		o.become(id, "message.updated", fmt.Sprintf(`{"sessionID":%q,"info":%s}`, id, copied))
	}
	return json.RawMessage(info), 200
}

// forkable is a chat with one turn that is over, and its session.
func (s *system) forkable() (chat, session string) {
	s.t.Helper()
	chat = s.chat("hello")
	p := s.prompted(1)[0]
	s.answer(p.session, p.MessageID)
	s.drained()
	return chat, p.session
}

func (s *system) fork(chatID string) (into string) {
	s.t.Helper()
	into, _, err := s.chats.Fork(s.t.Context(), chat.Fork{Chat: chatID})
	s.must(err)
	return into
}

// TestATryToForkThatWasCutOffLeavesNothing: OpenCode makes a copy and its answer is lost.
func TestATryToForkThatWasCutOffLeavesNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.start().connected()
	chat, session := s.forkable()
	before := s.metadata(session)
	copied, hold := make(chan string, 2), make(chan bool)
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	s.mu.Lock()
	s.refuse = func(r request) int {
		if !strings.HasSuffix(r.Path, "/fork") || len(s.requests("POST", "/fork")) > 1 {
			return 0
		}
		s.mu.Lock()
		q, _ := http.NewRequest("POST", "/", nil)
		q.SetPathValue("id", session)
		answer, _ := s.forkSession(q)
		s.mu.Unlock()
		var first client.Session
		_ = json.Unmarshal(answer.(json.RawMessage), &first)
		copied <- first.ID
		<-hold
		return 500
	}
	s.mu.Unlock()
	into := s.fork(chat)
	s.submit(into, "goes on")
	first := <-copied
	s.drained()
	is.Equal(s.chatOf(first), into) // it is known before its maker has an answer
	is.Equal(len(facts[events.SessionBound](s, into)), 0)
	is.Equal(len(s.promptsReceived()), 1) // what was said in the fork waits for it
	release()

	p := s.prompted(2)[1]
	bound := facts[events.SessionBound](s, into)
	is.Equal(len(bound), 1)
	is.Equal(bound[0].Session, p.session)
	is.True(bound[0].Session != first)
	s.drained()
	shown, err := s.model.Messages(t.Context(), into)
	is.NoErr(err)
	is.Equal(len(shown), 3) // the two copied ones, once, and the new one
	is.Equal(s.metadata(session), before)
	row, _, err := s.model.Chat(t.Context(), chat)
	is.NoErr(err)
	is.Equal(row.Session, session)
	chats, err := s.model.Chats(t.Context(), 10, 0)
	is.NoErr(err)
	is.Equal(len(chats), 2) // nothing was adopted
}

func (s *system) metadata(session string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.sessions[session].Metadata)
}

func TestAForkOfAChatInWhichNothingHasRunIsAnEmptyChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.start().connected()
	into := s.fork(s.chat())
	s.submit(into, "hello")
	p := s.prompted(1)[0]
	is.Equal(s.chatOf(p.session), into)
	is.Equal(len(s.requests("POST", "/fork")), 0)
}
