package projections_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
)

func TestTheQueueIsInThePersonsOrder(t *testing.T) {
	t.Parallel()
	moved := func(message, before string) events.Data { return events.MessageMoved{Message: message, Before: before} }
	for name, c := range map[string]struct {
		happens []events.Data // after a, b, c and d were submitted
		want    string        // messages that wait, with the text of an edited one and ! for one that steers
	}{
		"as submitted":               {nil, "a b c d"},
		"to the front":               {[]events.Data{moved("c", "a")}, "c a b d"},
		"between others":             {[]events.Data{moved("a", "d")}, "b c a d"},
		"to the end":                 {[]events.Data{moved("b", "")}, "a c d b"},
		"before one that is gone":    {[]events.Data{events.MessageWithdrawn{Message: "c"}, moved("a", "c")}, "b d a"},
		"twice":                      {[]events.Data{moved("d", "a"), moved("d", "c")}, "a b d c"},
		"steered":                    {[]events.Data{events.MessageSteered{Message: "c"}}, "c! a b d"},
		"the second that is steered": {[]events.Data{events.MessageSteered{Message: "d"}, events.MessageSteered{Message: "b"}}, "d! b! a c"},
		"submitted to steer":         {[]events.Data{events.MessageSubmitted{Message: "e", Parts: []events.Part{{Type: "text", Text: "e"}}, Delivery: events.DeliverySteer}}, "e! a b c d"},
		"submitted after a move":     {[]events.Data{moved("d", "a"), events.MessageSubmitted{Message: "e", Parts: []events.Part{{Type: "text", Text: "e"}}}}, "d a b c e"},
		"edited":                     {[]events.Data{events.MessageEdited{Message: "b", Parts: []events.Part{{Type: "text", Text: "B"}}}}, "a B c d"},
		"withdrawn":                  {[]events.Data{events.MessageWithdrawn{Message: "a"}}, "b c d"},
		"after the first is sent":    {[]events.Data{events.MessageSending{Message: "a", Session: ses, EngineMessage: msg1}, moved("d", "b")}, "a d b c"},
		"changed when sent":          {[]events.Data{events.MessageSending{Message: "a", Session: ses, EngineMessage: msg1}, events.MessageEdited{Message: "a"}, events.MessageWithdrawn{Message: "a"}}, "a b c d"},
		"of a message that failed":   {[]events.Data{events.MessageFailed{Message: "b"}, moved("d", "a")}, "d a c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			m, s := still(t), &eventBuilder{t: t}
			feed(t, m, s.created())
			for _, id := range []string{"a", "b", "c", "d"} {
				feed(t, m, s.own(events.MessageSubmitted{Message: id, Parts: []events.Part{{Type: "text", Text: id}}}))
			}
			for _, d := range c.happens {
				feed(t, m, s.own(d))
			}
			all, err := m.PendingMessages(t.Context())
			is.NoErr(err)
			var got []string
			for _, one := range all {
				parts, err := m.SubmittedParts(t.Context(), one.ID)
				is.NoErr(err)
				text := parts[0].Text
				if one.Delivery == events.DeliverySteer {
					text += "!"
				}
				got = append(got, text)
			}
			is.Equal(strings.Join(got, " "), c.want)
		})
	}
}

func TestAStopHoldsTheMessagesOfPersons(t *testing.T) {
	t.Parallel()
	say := func(id string) events.MessageSubmitted {
		return events.MessageSubmitted{Message: id, Parts: []events.Part{{Type: "text", Text: id}}}
	}
	scheduled, delegated, steers := say("schedule"), say("delegate"), say("steers")
	scheduled.Schedule, delegated.Sender, steers.Delivery = "s1", "c9", events.DeliverySteer
	const hook = "webhook:h1"
	resumes := say("resumes")
	resumes.Resumes = "per_1"
	const person, policy = "user:u1", events.ActorPolicy
	stop := events.AbortRequested{}
	type happened struct {
		by string
		events.Data
	}
	for name, c := range map[string]struct {
		happens []happened // after a and b were submitted
		want    string     // messages that wait, with ! for one that is held
		turn    string
	}{
		"stopped":                  {[]happened{{person, stop}}, "a! b!", "user"},
		"stopped twice":            {[]happened{{person, stop}, {person, stop}}, "a! b!", "user"},
		"stopped by a budget":      {[]happened{{policy, stop}}, "a b", "assistant"},
		"a subagent stopped":       {[]happened{{person, events.AbortRequested{Session: "ses_2"}}}, "a b", "assistant"},
		"one that was to steer":    {[]happened{{person, steers}, {person, stop}}, "steers! a! b!", "user"},
		"of others":                {[]happened{{person, scheduled}, {person, delegated}, {person, stop}}, "schedule a! b! delegate", "assistant"},
		"of a webhook":             {[]happened{{hook, say("posted")}, {person, stop}}, "a! b! posted", "assistant"},
		"the next of a webhook":    {[]happened{{person, stop}, {hook, say("posted")}}, "a! b! posted", "assistant"},
		"the next message":         {[]happened{{person, stop}, {person, say("c")}}, "a b c", "assistant"},
		"the next of a schedule":   {[]happened{{person, stop}, {"schedule:s1", scheduled}}, "schedule a! b!", "assistant"},
		"a prompt that resumes":    {[]happened{{person, stop}, {person, resumes}}, "a! b! resumes", "assistant"},
		"one is sent at once":      {[]happened{{person, stop}, {person, events.MessageSteered{Message: "b"}}}, "b a", "assistant"},
		"edited":                   {[]happened{{person, stop}, {person, events.MessageEdited{Message: "a", Parts: say("A").Parts}}}, "A! b!", "user"},
		"withdrawn":                {[]happened{{person, stop}, {person, events.MessageWithdrawn{Message: "a"}}}, "b!", "user"},
		"sent at the same moment":  {[]happened{{person, stop}, {person, events.MessageSending{Message: "a", Session: ses, EngineMessage: msg1}}}, "a b!", "assistant"},
		"a budget was spent since": {[]happened{{person, stop}, {policy, events.MessageHeld{Message: "a", Permission: "per_1", Reason: "spent"}}}, "a! b!", "user"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			m, s := still(t), &eventBuilder{t: t}
			feed(t, m, s.created(), s.own(say("a")), s.own(say("b")))
			for _, d := range c.happens {
				e := s.own(d.Data)
				e.Actor = d.by
				feed(t, m, e)
			}
			all, err := m.PendingMessages(t.Context())
			is.NoErr(err)
			var got []string
			for _, one := range all {
				parts, err := m.SubmittedParts(t.Context(), one.ID)
				is.NoErr(err)
				text := parts[0].Text
				if one.IsHeldByStop() {
					text += "!"
				}
				got = append(got, text)
			}
			is.Equal(strings.Join(got, " "), c.want)
			is.Equal(chat(t, m).Turn, c.turn)
		})
	}
}

func TestAfterALossOnlyAPersonSendsAMessage(t *testing.T) {
	t.Parallel()
	lost := func(id string) events.Data { return events.MessageHeld{Message: id, Reason: "events are lost"} }
	steer := func(id string) events.Data { return events.MessageSteered{Message: id} }
	next := events.MessageSubmitted{Message: "next", Parts: []events.Part{{Type: "text", Text: "next"}}}
	sending := events.MessageSending{Message: "a", Session: ses, EngineMessage: msg1, EngineParts: []string{"prt_a"}}
	for name, c := range map[string]struct {
		happens []events.Data // after a, b and the prompt r, which resumes a turn, were submitted
		want    string        // messages that wait, with ! for one that is held and their delivery
		turn    string
	}{
		"held":                  {[]events.Data{lost("a"), lost("b"), lost("r")}, "a! b! r!", "user"},
		"the next message":      {[]events.Data{lost("a"), lost("b"), lost("r"), next}, "a! b! r! next", "assistant"},
		"one is sent":           {[]events.Data{lost("a"), lost("b"), lost("r"), steer("b")}, "b a! r!", "assistant"},
		"PocketCoder's is sent": {[]events.Data{lost("a"), lost("b"), lost("r"), steer("r")}, "a! b! r", "assistant"},
		"all are deleted": {[]events.Data{lost("a"), lost("b"), lost("r"), events.MessageWithdrawn{Message: "a"},
			events.MessageWithdrawn{Message: "b"}, events.MessageWithdrawn{Message: "r"}}, "", "user"},
		"after a stop":     {[]events.Data{events.AbortRequested{}, lost("a"), lost("r"), next}, "a! b r! next", "assistant"},
		"before a stop":    {[]events.Data{lost("a"), lost("b"), lost("r"), events.AbortRequested{}, next}, "a! b! r! next", "assistant"},
		"a budget":         {[]events.Data{lost("a"), lost("b"), lost("r"), events.MessageHeld{Message: "a", Permission: "per_1"}}, "a! b! r!", "user"},
		"one that is sent": {[]events.Data{sending, lost("a"), lost("b"), lost("r")}, "a! b! r!", "user"},
		"one that was sent": {[]events.Data{sending, events.MessageDelivered{Message: "a", EngineMessage: msg1}, lost("a"),
			lost("b"), lost("r")}, "b! r!", "assistant"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			m, s := still(t), &eventBuilder{t: t}
			feed(t, m, s.created(), s.own(events.SessionBound{Session: ses, Directory: directed}))
			for _, id := range []string{"a", "b", "r"} {
				d := events.MessageSubmitted{Message: id, Parts: []events.Part{{Type: "text", Text: id}}}
				if id == "r" {
					d.Resumes = "per_2"
				}
				feed(t, m, s.own(d))
			}
			for _, d := range c.happens {
				feed(t, m, s.own(d))
			}
			all, err := m.PendingMessages(t.Context())
			is.NoErr(err)
			var got []string
			for _, one := range all {
				id := one.ID
				if one.IsHeldByLoss() {
					id += "!"
				}
				got = append(got, id)
			}
			is.Equal(strings.Join(got, " "), c.want)
			is.Equal(chat(t, m).Turn, c.turn)
			queue, err := m.Queue(t.Context(), chatID)
			is.NoErr(err)
			is.Equal(len(queue), len(all)-strings.Count(c.want+" ", "r ")) // PocketCoder's is there while it is held
		})
	}
}

// After a loss, OpenCode's report of a message can be in the log before its sending.
func TestAMessageThatOpenCodeHasReportedIsFoundAndJoined(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.created(), s.own(events.SessionBound{Session: ses, Directory: directed}), s.submitted("m1"),
		s.userMessage("msg_1tail"), textPart(s, "msg_1tail", "prt_1", "words"),
		s.assistant(ses, "msg_a", "msg_1tail", ended), s.status(ses, "idle"))
	for tail, want := range map[string]bool{"tail": true, "msg_1tail": true, "other": false} {
		_, found, err := m.ReportedMessage(t.Context(), chatID, tail)
		is.NoErr(err)
		is.Equal(found, want) // tail
	}
	reported, _, err := m.ReportedMessage(t.Context(), chatID, "tail")
	is.NoErr(err)
	is.Equal(reported.PartIDs(), []string{"prt_1"})
	feed(t, m, s.own(events.MessageSending{Message: "m1", Session: reported.Session,
		EngineMessage: reported.EngineMessage, EngineParts: reported.PartIDs()}), s.delivered("m1", "msg_1tail"))
	_, found, err := m.ReportedMessage(t.Context(), chatID, "tail")
	is.NoErr(err)
	is.True(!found)
	all := shown(t, m)
	is.Equal(len(all), 2)
	is.Equal([]string{all[0].ID, all[0].UserStatus, all[0].EngineMessage}, []string{"m1", "delivered", "msg_1tail"})
	expect.Contains(t, string(all[0].Parts), `"prt_1"`)
	is.Equal(chat(t, m).Turn, "user")      // it is answered
	feed(t, m, s.userMessage("msg_1tail")) // OpenCode's next report is about it
	is.Equal(len(shown(t, m)), 2)
}

func TestAWithdrawnMessageIsGoneAndNothingRuns(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, s.assistant(ses, "msg_a", msg1, ended), s.status(ses, "idle"), s.submitted("m2"))
	is.Equal(chat(t, m).Turn, "assistant")
	feed(t, m, s.own(events.MessageWithdrawn{Message: "m2"}))
	is.Equal(chat(t, m).Turn, "user")
	is.Equal(len(shown(t, m)), 2)
}

func TestAMessageThatJoinedAStoppedTurnIsNotAwaited(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]events.Data{"aborted": events.AbortRequested{},
		"reverted": events.RevertRequested{Message: msg1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			m, s := still(t), &eventBuilder{t: t}
			feed(t, m, s.begun()...)
			requested := s.own(request)
			feed(t, m, s.assistant(ses, "msg_a", msg1, ""), s.submitted("m2"), s.sending("m2", msg2), s.delivered("m2", msg2),
				requested, s.assistant(ses, "msg_a", msg1, ended), s.status(ses, "idle"))
			is.Equal(chat(t, m).Turn, "assistant")
			feed(t, m, s.own(events.EffectDone{Effect: requested.ID}))
			is.Equal(chat(t, m).Turn, "user")
		})
	}
}
