package console

import (
	"io"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/cmdtest"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/account"
	"pocketcoder/web/webtest"
)

func TestExitStatusWhenADenialLeavesAnotherRequest(t *testing.T) {
	t.Parallel()
	deny := func(typ, reason string) events.Data {
		return events.PermissionDecided{Permission: "per_1", Type: typ, Decision: events.Denied, Reason: reason}
	}
	for name, c := range map[string]struct {
		happens []events.Data
		want    End
	}{
		"nothing was denied":        {nil, Pending},
		"denied":                    {[]events.Data{deny("bash", "")}, Denied},
		"denied with a reason":      {[]events.Data{deny("bash", "not today")}, Pending},
		"one of each":               {[]events.Data{deny("bash", ""), deny("bash", "not today")}, Denied},
		"a created name is deleted": {[]events.Data{deny(events.KindKeep, "")}, Pending},
		"more budget is denied":     {[]events.Data{deny(events.KindBudget, "enough")}, Denied},
		"in the turn that is resumed": {[]events.Data{deny("bash", ""),
			events.MessageSubmitted{Message: "m2", Resumes: "per_2"}}, Pending},
	} {
		t.Run(name, func(t *testing.T) {
			f := turn{stoppedBy: map[string]bool{}}
			for i, d := range c.happens {
				f.apply(cmdtest.Own(t, i+1, "user:u", d), d)
			}
			is.New(t).Equal(f.endWaiting(), c.want)
		})
	}
}

// happened is an event by an actor, and how the conversation is over when it is shown.
type happened struct {
	by   string
	data events.Data
	end  string // going on, waiting for a person, or an exit status
}

// In these turns the events of OpenCode are not all there is.
func TestConversationEndsWithTheTurn(t *testing.T) {
	t.Parallel()
	const (
		user, policy, engine = "user:u", events.ActorPolicy, "engine:local"
		runs, waits          = "runs", "waits"
	)
	names := map[End]string{Completed: "completed", Failed: "failed", Denied: "denied", Aborted: "aborted", Lost: "lost",
		Pending: "pending"}
	submitted := func(id string) happened { return happened{user, events.MessageSubmitted{Message: id}, runs} }
	sending := happened{engine, events.MessageSending{Message: "m1", Session: "ses_1", EngineMessage: "msg_1"}, runs}
	delivered := happened{engine, events.MessageDelivered{Message: "m1", EngineMessage: "msg_1"}, runs}
	lost := func(end string) happened { return happened{engine, events.TurnLost{Session: "ses_1"}, end} }
	budget := happened{policy, events.PermissionRequested{Permission: "p1", Type: events.KindBudget}, runs}
	// it runs until the policy has evaluated the request
	held := happened{engine, events.MessageHeld{Message: "m1", Permission: "p1", Reason: "spent"}, runs}
	referred := happened{policy, events.PermissionReferred{Permission: "p1"}, waits}
	decided := func(d events.Decision, end string) happened {
		return happened{user, events.PermissionDecided{Permission: "p1", Type: events.KindBudget, Decision: d}, end}
	}
	for name, all := range map[string][]happened{
		"the message fails":                        {submitted("m1"), {engine, events.MessageFailed{Message: "m1", Error: "no"}, "failed"}},
		"it is stopped before its message is sent": {submitted("m1"), {user, events.AbortRequested{}, "aborted"}},
		"it is lost":                               {submitted("m1"), sending, delivered, lost("lost")},
		"a loss holds the next message": {submitted("m1"), sending, delivered, submitted("m2"), lost(runs),
			{engine, events.MessageHeld{Message: "m2", Reason: "lost"}, "lost"}},
		"a loss holds a message that was not sent": {submitted("m1"),
			{engine, events.MessageHeld{Message: "m1", Reason: "lost"}, "pending"}},
		"a message that a loss held is withdrawn": {submitted("m1"), submitted("m2"),
			{engine, events.MessageHeld{Message: "m1", Reason: "lost"}, runs}, {user, events.MessageWithdrawn{Message: "m2"}, "pending"}},
		"it waits for more budget": {submitted("m1"), budget, held, referred},
		"more budget is denied":    {submitted("m1"), budget, held, referred, decided(events.Denied, "denied")},
		"more budget is approved":  {submitted("m1"), budget, held, referred, decided(events.Authorized, runs), sending},
		"a budget stops the turn":  {submitted("m1"), sending, delivered, budget, {policy, nil, runs}, lost(runs), referred},
		"the stopped turn goes on": {submitted("m1"), sending, delivered, budget, {policy, nil, runs}, lost(runs),
			referred, decided(events.Authorized, runs), {user, events.MessageSubmitted{Message: "m2", Resumes: "p1"}, runs}},
		"the approval expires": {submitted("m1"), sending, delivered, budget, {policy, nil, runs}, lost(runs), referred,
			decided(events.Authorized, runs), {engine, events.PermissionExpired{Permission: "p1"}, "lost"}},
		"the stopped turn does not": {submitted("m1"), sending, delivered, budget, {policy, nil, runs}, lost(runs),
			referred, decided(events.Denied, "denied")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			system := webtest.NewSystem(t)
			c := newConversation(client.At(system.Local(t)), Options{Chat: "chat1", Once: true, Out: io.Discard}, nil)
			c.caughtUp, c.exists = true, true
			chat := []happened{{user, events.ChatCreated{Engine: "local"}, ""},
				{engine, events.SessionBound{Session: "ses_1", Directory: "/workspace"}, ""}}
			for _, h := range append(chat, all...) {
				e := events.Event{}
				if h.data == nil { // the policy stops the turn
					e = cmdtest.Own(t, 0, policy, events.AbortRequested{})
					e.Cause = "p1"
				} else {
					e = cmdtest.Own(t, 0, h.by, h.data)
				}
				seq, err := system.Log.AppendAll(t.Context(), []events.Event{e})
				is.NoErr(err)
				is.NoErr(c.applyBatch(t.Context(), log.Batch{Events: []events.Event{cmdtest.Numbered(e, int(seq))}}))
				got := runs
				if code, over := c.isOver(); over {
					got = names[code]
				} else if len(c.pending) > 0 {
					got = waits
				}
				if h.end != "" {
					is.Equal(got, h.end)
				}
			}
		})
	}
}

// follows returns a conversation of a person with a chat, which has caught up, and the function that brings it an
// event.
func follows(t *testing.T, s *webtest.System, token, chat string) (*conversation,
	func(by string, d events.Data) error) {
	t.Helper()
	system := client.At(s.URL)
	system.Token = token
	c := newConversation(system, Options{Chat: chat, Out: io.Discard}, nil)
	c.caughtUp, c.exists = true, true
	return c, func(by string, d events.Data) error {
		e, err := events.New(chat, by, d)
		webtest.Check(t, err)
		e.Seq, err = s.Log.Append(t.Context(), e)
		webtest.Check(t, err)
		return c.applyBatch(t.Context(), log.Batch{Events: []events.Event{e}})
	}
}

// Several accounts can share a budget. A person sees no request in the chat of another one.
func TestAMessageMayBeHeldByARequestInAnotherChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	_, bob := s.User(t, "bob", account.User)
	others := s.Chat(t, ann, "of ann")
	s.Append(t, others, events.PermissionRequested{Permission: "p1", Type: events.KindBudget})
	s.Append(t, others, events.PermissionReferred{Permission: "p1"})
	c, apply := follows(t, s, bob, s.Chat(t, bob, "of bob"))
	is.NoErr(apply("user:bob", events.MessageSubmitted{Message: "m1", Parts: []events.Part{{Type: "text", Text: "hi"}}}))
	is.NoErr(apply("engine:local", events.MessageHeld{Message: "m1", Permission: "p1", Reason: "spent"}))
	is.Equal(c.working, false)
	is.Equal(c.turn.end(), End(Pending))
}

func TestAConversationEndsWithItsChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, bob := s.User(t, "bob", account.User)
	_, apply := follows(t, s, bob, s.Chat(t, bob, "of bob"))
	is.NoErr(apply("user:bob", events.MessageSubmitted{Message: "m1", Parts: []events.Part{{Type: "text", Text: "hi"}}}))
	err := apply("user:bob", events.Deleted{})
	is.True(err != nil)
	is.Equal(err.Error(), "the chat was deleted")
}
