package push_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
)

const (
	completed = `,"finish":"stop","time":{"completed":5}`
	stopped   = `,"time":{"completed":5},"error":{"name":"MessageAbortedError","data":{}}`
	broken    = `,"time":{"completed":5},"error":{"name":"APIError","data":{"message":"the provider says no"}}`
)

// turn appends the events of one turn in a chat's own session.
type turn struct {
	*system
	chat, session string
}

func (s *system) turn() turn {
	s.t.Helper()
	ann := s.user("ann", account.User)
	chat := s.chat(ann, "chat")
	return turn{s, chat, "ses_" + chat}
}

// submitted appends a person's message that was sent to OpenCode.
func (u turn) submitted(n int) {
	u.t.Helper()
	id, engine := fmt.Sprintf("m%d", n), fmt.Sprintf("msg_%d0", n)
	u.append(u.chat, events.MessageSubmitted{Message: id, Parts: []events.Part{{Type: "text", Text: "do it"}}})
	u.append(u.chat, events.MessageSending{Message: id, Session: u.session, EngineMessage: engine,
		EngineParts: []string{"prt_" + id}})
	u.append(u.chat, events.MessageDelivered{Message: id, EngineMessage: engine})
	u.appendOpenCode(u.chat, "message.updated", fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"role":"user"}}`, u.session,
		engine))
}

// answer appends a step of the answer to the nth message.
func (u turn) answer(n, step int, more string) {
	u.t.Helper()
	u.appendOpenCode(u.chat, "message.updated", fmt.Sprintf(`{"sessionID":%q,"info":{"id":"msg_%d%d","role":"assistant","parentID":"msg_%d0"%s}}`, u.session, n, step, n, more))
}

func (u turn) text(n, step int, text string) {
	u.t.Helper()
	u.appendOpenCode(u.chat, "message.part.updated", fmt.Sprintf(`{"sessionID":%q,"part":{"id":"prt_%d%d","messageID":"msg_%d%d","type":"text","text":%q}}`, u.session, n, step, n, step, text))
}

func (u turn) status(session, status string) {
	u.t.Helper()
	u.appendOpenCode(u.chat, "session.status", fmt.Sprintf(`{"sessionID":%q,"status":{"type":%q}}`, session, status))
	if status == "idle" {
		u.appendOpenCode(u.chat, "session.idle", fmt.Sprintf(`{"sessionID":%q}`, session))
	}
}

func TestTheEndOfATurnIsNotifiedOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	u := s.turn()
	s.device("d1", s.owner(u.chat), "unifiedpush", r.URL+"/topic")
	for n := 1; n <= 2; n++ {
		u.submitted(n)
		u.status(u.session, "busy")
		u.answer(n, 1, completed) // a step, not the end of the turn
		u.status("ses_child", "idle")
		u.answer(n, 2, "")
		u.text(n, 2, fmt.Sprint("answer ", n))
		u.answer(n, 2, completed)
		s.awaitConsumer()
		is.Equal(len(r.requests()), n-1)
		u.status(u.session, "idle")
		u.status(u.session, "idle")
		b := read(t, s.awaitRequest(r, n-1).body)
		is.Equal([]string{b.Type, b.Title, b.Message, b.Chat}, []string{"task_complete", "chat: done",
			fmt.Sprint("answer ", n), u.chat})
	}
	s.awaitConsumer()
	is.Equal(len(r.requests()), 2)
	is.Equal(r.requests()[0].header.Get("Priority"), "default")
}

// owner returns the owner of a chat.
func (s *system) owner(chat string) string {
	s.t.Helper()
	c, _, err := s.model.Chat(s.t.Context(), chat)
	check(s.t, err)
	return c.User
}

func TestTheEndOfATurnQuotesTheLastParagraph(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	u := s.turn()
	s.device("d1", s.owner(u.chat), "unifiedpush", r.URL+"/topic")
	u.submitted(1)
	u.status(u.session, "busy")
	u.answer(1, 1, "")
	u.text(1, 1, "I looked around.\n\nEverything works:\n- the tests pass\n")
	u.answer(1, 1, completed)
	u.status(u.session, "idle")
	is.Equal(read(t, s.awaitRequest(r, 0).body).Message, "Everything works:\n- the tests pass")
}

func TestATurnWithoutAWholeAnswerIsNotDone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ finish, text, title, message string }{
		"cut":   {"length", "half of", "chat: not finished", "The answer was cut: the model reached its limit of output."},
		"empty": {"stop", "", "chat: not finished", "The model ended its turn without an answer."},
		"lost": {"unknown", "", "chat: it went wrong",
			"The turn was lost: OpenCode or the answer of the model ended in the middle of it."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s, r := newSystem(t), newReceiver(t, nil)
			u := s.turn()
			s.device("d1", s.owner(u.chat), "unifiedpush", r.URL+"/topic")
			u.submitted(1)
			u.status(u.session, "busy")
			u.answer(1, 1, "")
			u.text(1, 1, c.text)
			u.appendOpenCode(u.chat, "message.part.updated", fmt.Sprintf(
				`{"sessionID":%q,"part":{"id":"prt_end","messageID":"msg_11","type":"step-finish"}}`, u.session))
			u.answer(1, 1, fmt.Sprintf(`,"finish":%q,"time":{"completed":5}`, c.finish))
			u.status(u.session, "idle")
			b := read(t, s.awaitRequest(r, 0).body)
			is.Equal([]string{b.Type, b.Title, b.Message}, []string{"task_error", c.title, c.message})
		})
	}
}

func TestAPromptIsNotQuotedAsAnAnswer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	u := s.turn()
	s.device("d1", s.owner(u.chat), "unifiedpush", r.URL+"/topic")
	u.submitted(1)
	u.status(u.session, "busy")
	u.answer(1, 1, completed)
	u.status(u.session, "idle")
	is.Equal(read(t, s.awaitRequest(r, 0).body).Message, "The turn is over.")
}

func TestATurnThatADenialEndedIsNotified(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	u := s.turn()
	ann := s.owner(u.chat)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	for i, reason := range []string{"", "use make"} {
		n := i + 1
		s.present.Store(ann + "/" + u.chat)
		u.submitted(n)
		u.status(u.session, "busy")
		u.answer(n, 1, "")
		id := fmt.Sprint("per_", n)
		u.appendOpenCode(u.chat, events.PermissionAsked, fmt.Sprintf(`{"id":%q,"sessionID":%q,"permission":"bash","patterns":["x"],"metadata":{"command":"rm -r build"},"tool":{"messageID":"msg_%d1","callID":"c"}}`, id, u.session, n))
		u.append(u.chat, events.PermissionReferred{Permission: id})
		u.append(u.chat, events.PermissionDecided{Permission: id, Decision: events.Denied, Reason: reason})
		u.answer(n, 1, completed)
		s.awaitConsumer()
		s.present.Store("")
		sent := len(r.requests())
		u.status(u.session, "idle")
		b := read(t, s.awaitRequest(r, sent).body)
		if reason == "" {
			is.Equal([]string{b.Title, b.Message}, []string{"chat: stopped: denied", "bash: rm -r build"})
		} else {
			is.Equal(b.Title, "chat: done") // the model got the reason, and continued
		}
	}
}

func TestAFailedTurnIsNotified(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail    func(u turn)
		message string
	}{
		"the provider's error": {func(u turn) {
			u.status(u.session, "busy")
			u.answer(1, 1, "")
			u.appendOpenCode(u.chat, "session.error", fmt.Sprintf(`{"sessionID":%q,"error":{"name":"APIError","data":{"message":"early"}}}`, u.session))
			u.status(u.session, "idle") // before the message has ended
			u.answer(1, 1, broken)
			u.status(u.session, "idle")
		}, "the provider says no"},
		"an error and nothing else": {func(u turn) {
			u.appendOpenCode(u.chat, "session.error", fmt.Sprintf(`{"sessionID":%q,"error":{"name":"UnknownError","data":{"message":"no such agent"}}}`, u.session))
		}, "no such agent"},
		"lost with OpenCode": {func(u turn) {
			u.status(u.session, "busy")
			u.answer(1, 1, "")
			u.append(u.chat, events.TurnLost{Session: u.session})
		}, "The turn was lost: OpenCode or the answer of the model ended in the middle of it."},
		"never delivered": {func(u turn) {
			u.status(u.session, "busy")
			u.answer(1, 1, completed)
			u.status(u.session, "idle")
			u.awaitRequest(u.receiver, 0)
			u.append(u.chat, events.MessageSubmitted{Message: "m2", Parts: []events.Part{{Type: "text", Text: "more"}}})
			u.append(u.chat, events.MessageFailed{Message: "m2", Domain: "infrastructure", Error: "OpenCode does not answer"})
		}, "OpenCode does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := newSystem(t)
			s.receiver = newReceiver(t, nil)
			u := s.turn()
			s.device("d1", s.owner(u.chat), "unifiedpush", s.receiver.URL+"/topic")
			u.submitted(1)
			c.fail(u)
			s.awaitConsumer()
			s.eventually("OpenCode gets it", func() bool {
				all := s.receiver.requests()
				return len(all) > 0 && read(t, all[len(all)-1].body).Type == "task_error"
			})
			all := s.receiver.requests()
			b := read(t, all[len(all)-1].body)
			is.Equal([]string{b.Title, b.Message}, []string{"chat: it went wrong", c.message})
		})
	}
}

func TestAStoppedTurnIsNotNotified(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	u := s.turn()
	s.device("d1", s.owner(u.chat), "unifiedpush", r.URL+"/topic")
	u.submitted(1)
	u.status(u.session, "busy")
	u.answer(1, 1, "")
	u.status(u.session, "idle")
	u.answer(1, 1, stopped)
	u.status(u.session, "idle")
	s.awaitConsumer()
	is.Equal(len(r.requests()), 0)
}

func TestAnOldTurnIsNotNotified(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	u := s.turn()
	s.device("d1", s.owner(u.chat), "unifiedpush", r.URL+"/topic")
	s.present.Store(s.owner(u.chat) + "/" + u.chat)
	u.submitted(1)
	u.answer(1, 1, completed)
	e, err := events.NewOpenCode(u.chat, "local", "evt_old", -1,
		events.OpenCode{Type: "session.status", Properties: []byte(fmt.Sprintf(`{"sessionID":%q,"status":{"type":"idle"}}`,
			u.session))})
	check(t, err)
	e.Time = time.Now().Add(-2 * time.Hour)
	s.awaitConsumer()
	s.present.Store("")
	s.store(e)
	s.awaitConsumer()
	is.Equal(len(r.requests()), 0)
}
