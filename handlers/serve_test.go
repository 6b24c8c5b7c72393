package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/expect"
	"pocketcoder/handlers/policy"
)

// serveCommands takes commands in alice's name and gives a connection to give them over.
func serveCommands(t *testing.T) (*Handlers, *nats.Conn) {
	t.Helper()
	s := eventstest.Server(t, t.TempDir())
	nc := eventstest.Conn(t, s)
	h := &Handlers{Log: eventstest.Open(t, eventstest.Conn(t, s))}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	g := Gate{Handlers: h, Session: func(string) (Session, bool) { return Session{}, false }, Log: quiet()}
	go func() { done <- h.Serve(ctx, nc, alice, quiet()) }()
	go func() { done <- g.Serve(ctx, nc, alice) }()
	for nc.NumSubscriptions() < len(h.commands())+len(g.commands()) {
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
	give := func(name string, command any) Accepted {
		t.Helper()
		a, err := Give(t.Context(), nc, name, command)
		is.NoErr(err)
		return a
	}
	chat := give("chat.create", CreateChat{Title: "over NATS", Command: Command{Actor: "user:mallory"}})
	is.Equal(chat.Seq, uint64(1))
	message := give("message.submit", SubmitMessage{Chat: chat.ID, Message: "m1", Parts: say("hi")})
	is.Equal(message, Accepted{ID: "m1", Seq: 2})
	is.Equal(give("message.submit", SubmitMessage{Chat: chat.ID, Message: "m1", Parts: say("hi")}), message)
	happened(t, h.Log, chat.ID, askBash("per_1", "ls"), asksTwo)
	decided := give("permission.decide", DecidePermission{Command: Command{ID: "cmd1"}, Chat: chat.ID, Permission: "per_1", Decision: events.Denied, Reason: "no"})
	is.Equal(decided, Accepted{Seq: 5})
	is.Equal(give("question.answer", AnswerQuestion{Chat: chat.ID, Question: "que_1", Answers: []string{"a"}}).Seq, uint64(6))
	is.Equal(give("turn.abort", AbortTurn{Chat: chat.ID}).Seq, uint64(7))
	all, _ := history(t, h.Log, chat.ID)
	is.Equal(len(all), 7)
	is.Equal(all[0].Actor, alice) // who serves says who it was, not who asks
	is.Equal(all[4].Cause, "cmd1")
}

// Who may only read can still make a consumer that delivers stored events where commands are taken.
func TestStoredEventsAreNoCommands(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h, nc := serveCommands(t)
	create := func() {
		t.Helper()
		_, err := Give(t.Context(), nc, "chat.create", CreateChat{Title: "over NATS"})
		is.NoErr(err)
	}
	create()
	js, err := nc.JetStream()
	is.NoErr(err)
	_, err = js.AddConsumer("EVENTS", &nats.ConsumerConfig{
		Name: "forger", DeliverSubject: "cmd.chat.create", DeliverGroup: "handlers", AckPolicy: nats.AckExplicitPolicy, DeliverPolicy: nats.DeliverAllPolicy,
	})
	is.NoErr(err)
	for delivered := uint64(0); delivered == 0; {
		c, err := js.ConsumerInfo("EVENTS", "forger")
		is.NoErr(err)
		delivered = c.Delivered.Consumer
	}
	for range 9 { // what was delivered is heard before these, by the same subscription
		create()
	}
	last, err := h.Log.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, uint64(10))
}

func TestRefusalsComeBackOverNATS(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h, nc := serveCommands(t)
	_, err := Give(t.Context(), nc, "chat.create", CreateChat{Chat: "c1", Title: "a"})
	is.NoErr(err)
	for _, c := range []struct {
		name    string
		command any
		code    Code
		says    string
	}{
		{"chat.create", CreateChat{Chat: "c1", Title: "b"}, Conflict, "chat c1 exists already"},
		{"message.submit", SubmitMessage{Chat: "c9", Parts: say("hi")}, NotFound, "there is no chat c9"},
		{"message.submit", SubmitMessage{Chat: "c1"}, Invalid, "the message is empty"},
		{"message.submit", SubmitMessage{Chat: "c1", Parts: say(strings.Repeat("x", 2<<20))}, Invalid, "the limit is 1048576"},
		{"message.submit", map[string]any{"chat": "c1", "txt": "hi"}, Invalid, `unknown field "txt"`},
		{"permission.decide", map[string]any{"chat": "c1", "permission": "per_1", "decision": "denied", "rule": "bash: *"}, Invalid, `unknown field "rule"`},
		{"permission.decide", map[string]any{"chat": "c1", "Actor": "user:root"}, Invalid, `unknown field "Actor"`},
		{"permission.decide", []int{1}, Invalid, "the command is not readable"},
		{"turn.abort", json.RawMessage(`"c1"`), Invalid, "the command is not readable"},
	} {
		_, err := Give(t.Context(), nc, c.name, c.command)
		is.Equal(refusal(t, err), c.code)
		is.True(err != nil && strings.Contains(err.Error(), c.says))
	}
	_, err = Give(t.Context(), nc, "chat.destroy", struct{}{})
	is.True(errors.Is(err, nats.ErrNoResponders)) // and says which
	expect.Contains(t, err.Error(), "give chat.destroy")
	last, err := h.Log.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, uint64(1))
}

// What is ours to repair is no refusal.
func TestErrorOfTheLogIsNoRefusal(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := eventstest.Server(t, t.TempDir())
	nc, broken := eventstest.Conn(t, s), eventstest.Conn(t, s)
	h := &Handlers{Log: eventstest.Open(t, broken)}
	broken.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go h.Serve(ctx, nc, alice, quiet())
	for nc.NumSubscriptions() < len(h.commands()) {
		nc.Flush()
	}
	_, err := Give(t.Context(), nc, "turn.abort", AbortTurn{Chat: "c1"})
	is.True(err != nil)
	is.True(!errors.As(err, new(Refused)))
	expect.Contains(t, err.Error(), "connection closed")
}

func TestGateCommandsOverNATS(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := eventstest.Server(t, t.TempDir())
	nc := eventstest.Conn(t, s)
	h := &Handlers{Log: eventstest.Open(t, eventstest.Conn(t, s))}
	_, _, err := h.CreateChat(t.Context(), CreateChat{Chat: "c1"})
	is.NoErr(err)
	g := gateOn(h)
	g.Session = func(string) (Session, bool) { return Session{Chat: "c1", Directory: "/"}, true }
	g.Call = func(context.Context, string, events.Call, time.Duration) (Call, bool) {
		return Call{Command: "make build", Cwd: "/", Agent: "build"}, true
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go g.Serve(ctx, nc, alice)
	for nc.NumSubscriptions() < len(g.commands()) {
		nc.Flush()
	}
	is.NoErr(nc.Flush())
	ask := askBash("per_1", "make build")
	happened(t, h.Log, "c1", ask)
	is.NoErr(g.react(t.Context(), ask.event(t, "c1")))
	asks := eventstest.Conn(t, s)
	told := func(name string, command, into any) Accepted {
		t.Helper()
		a, err := Give(t.Context(), asks, name, command)
		is.NoErr(err)
		is.NoErr(json.Unmarshal(a.Result, into))
		return a
	}
	c := AlwaysPermission{Chat: "c1", Permission: "per_1", Scope: ScopeAll}
	var p Proposal
	told("permission.propose", c, &p)
	is.Equal(p.All.Allowed, 1)
	var run DryRun
	told("policy.replay", ReplayPolicy{Rule: p.Rules[0]}, &run)
	is.Equal(run, p.All)
	var ids []string
	is.True(told("permission.always", c, &ids).Seq > 0)
	var rules []policy.Rule
	told("policy.rules", ListRules{}, &rules)
	is.Equal(len(rules), 1+len(g.Rules))
	is.Equal(rules[0].ID, ids[0])
	var w Why
	told("permission.why", AskWhy{Chat: "c1", Permission: "per_1"}, &w)
	is.Equal(w.Decision.Actor, alice)
	_, err = Give(t.Context(), asks, "permission.why", AskWhy{Chat: "c1", Permission: "per_9"})
	is.Equal(refusal(t, err), NotFound)
}
