package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/expect"
	"pocketcoder/handlers"
	"pocketcoder/handlers/budget"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
)

// serveCommands takes commands in alice's name and gives a connection to give them over.
func serveCommands(t *testing.T) (*permissiontest.Handlers, *nats.Conn) {
	t.Helper()
	s := eventstest.Server(t, expect.MemoryDir(t))
	nc := eventstest.Conn(t, s)
	h := permissiontest.New(eventstest.Open(t, eventstest.Conn(t, s)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 4)
	g := permission.Gate{Permissions: h.Permissions, Records: h.Records,
		Session: func(string) (permission.Session, bool) { return permission.Session{}, false }, Logger: handlerstest.Quiet()}
	served := 0
	for _, commands := range []handlers.Commands{h.Chats.Commands(), h.Records.Commands(),
		(&budget.Budgets{Records: h.Records, Permissions: h.Permissions}).Commands(), g.Commands()} {
		served += len(commands)
		go func() { done <- commands.Serve(ctx, nc, handlerstest.Alice, handlerstest.Quiet()) }()
	}
	for nc.NumSubscriptions() < served {
		nc.Flush()
	}
	is.New(t).NoErr(nc.Flush())
	t.Cleanup(func() {
		cancel()
		for range cap(done) {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
	return h, eventstest.Conn(t, s)
}

func TestCommandsOverNATS(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h, nc := serveCommands(t)
	give := func(name string, command any) handlers.Accepted {
		t.Helper()
		a, err := handlers.Send(t.Context(), nc, name, command)
		is.NoErr(err)
		return a
	}
	chatValue := give("chat.create", chat.Create{Title: "over NATS", Command: handlers.Command{Actor: "user:mallory"}})
	is.Equal(chatValue.Seq, uint64(1))
	message := give("message.submit", chat.SubmitMessage{Chat: chatValue.ID, Message: "m1", Parts: handlerstest.Say("hi")})
	is.Equal(message, handlers.Accepted{ID: "m1", Seq: 2})
	is.Equal(give("message.submit", chat.SubmitMessage{Chat: chatValue.ID, Message: "m1", Parts: handlerstest.Say("hi")}),
		message)
	handlerstest.Happened(t, h.Log, chatValue.ID, handlerstest.AskBash("per_1", "ls"), handlerstest.AsksTwo)
	decided := give("permission.decide", permission.Decide{Command: handlers.Command{ID: "cmd1"}, Chat: chatValue.ID,
		Permission: "per_1", Decision: events.Denied, Reason: "no"})
	is.Equal(decided, handlers.Accepted{Seq: 5})
	is.Equal(give("question.answer", chat.AnswerQuestion{Chat: chatValue.ID, Question: "que_1",
		Answers: []string{"a"}}).Seq, uint64(6))
	is.Equal(give("turn.abort", chat.AbortTurn{Chat: chatValue.ID}).Seq, uint64(7))
	all, _ := handlerstest.History(t, h.Log, chatValue.ID)
	is.Equal(len(all), 7)
	is.Equal(all[0].Actor, handlerstest.Alice) // who serves says who it was, not who asks
	is.Equal(all[4].Cause, "cmd1")
}

func TestRefusalsComeBackOverNATS(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h, nc := serveCommands(t)
	_, err := handlers.Send(t.Context(), nc, "chat.create", chat.Create{Chat: "c1", Title: "a"})
	is.NoErr(err)
	for _, c := range []struct {
		name    string
		command any
		code    handlers.Code
		want    string
	}{
		{"chat.create", chat.Create{Chat: "c1", Title: "b"}, handlers.Conflict, "chat c1 exists already"},
		{"message.submit", chat.SubmitMessage{Chat: "c9", Parts: handlerstest.Say("hi")}, handlers.NotFound, "there is no chat c9"},
		{"message.submit", chat.SubmitMessage{Chat: "c1"}, handlers.Invalid, "the message is empty"},
		{"message.submit", chat.SubmitMessage{Chat: "c1", Parts: handlerstest.Say(strings.Repeat("x", 2<<20))}, handlers.Invalid, "the limit is 1048576"},
		{"message.submit", map[string]any{"chat": "c1", "txt": "hi"}, handlers.Invalid, `unknown field "txt"`},
		{"permission.decide", map[string]any{"chat": "c1", "permission": "per_1", "decision": "denied", "rule": "bash: *"}, handlers.Invalid, `unknown field "rule"`},
		{"permission.decide", map[string]any{"chat": "c1", "Actor": "user:root"}, handlers.Invalid, `unknown field "Actor"`},
		{"permission.decide", []int{1}, handlers.Invalid, "the command cannot be decoded"},
		{"turn.abort", json.RawMessage(`"c1"`), handlers.Invalid, "the command cannot be decoded"},
	} {
		_, err := handlers.Send(t.Context(), nc, c.name, c.command)
		is.Equal(handlerstest.Refusal(t, err), c.code)
		is.True(err != nil && strings.Contains(err.Error(), c.want))
	}
	_, err = handlers.Send(t.Context(), nc, "chat.destroy", struct{}{})
	is.True(errors.Is(err, nats.ErrNoResponders)) // and says which
	expect.Contains(t, err.Error(), "send chat.destroy")
	last, err := h.Log.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, uint64(1))
}

// What is ours to repair is no refusal.
func TestErrorOfTheLogIsNoRefusal(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := eventstest.Server(t, expect.MemoryDir(t))
	nc, broken := eventstest.Conn(t, s), eventstest.Conn(t, s)
	h := permissiontest.New(eventstest.Open(t, broken))
	broken.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go h.Chats.Commands().Serve(ctx, nc, handlerstest.Alice, handlerstest.Quiet())
	for nc.NumSubscriptions() < len(h.Chats.Commands()) {
		nc.Flush()
	}
	_, err := handlers.Send(t.Context(), nc, "turn.abort", chat.AbortTurn{Chat: "c1"})
	is.True(err != nil)
	is.True(!errors.As(err, new(handlers.Refused)))
	expect.Contains(t, err.Error(), "connection closed")
}
