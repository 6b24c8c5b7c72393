package main

import (
	"slices"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/projections"
)

func TestQueueIsChangedInTheTerminal(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := startAPI(t)
	chat := p.create(t, "queued")
	p.begin(t, chat, "first")
	p.ask(t, chat, "per_1", "printf first")
	s := p.startConversation(t, chat)
	s.awaitText("allow it?")
	s.typeText("/queue\r")
	s.awaitText("(no message waits)")
	s.typeText("/queue delete 1\r")
	s.awaitText("list the queue first")
	for _, text := range []string{"one", "two", "three"} {
		p.submit(t, chat, text)
	}
	s.typeText("/queue\r")
	s.awaitText("  3  three")
	for _, c := range []struct{ types, sees string }{
		{"/queue up 1", "this message is the first already"},
		{"/queue up 4", "choose a number from 1 to 3"},
		{"/queue drop 2", `"drop" is not known`},
		{"/queue delete two", "write /queue, or /queue with edit N TEXT"},
		{"/queue delete 2 3", "write /queue, or /queue with edit N TEXT"},
		{"/queue edit 2", "write the new text of the message"},
		{"/queue edit 2 2 and a half", "  2  2 and a half"},
		{"/queue up 3", "  2  three"},
		{"/queue delete 1", "  1  three"},
	} {
		s.typeText(c.types + "\r")
		s.awaitText(c.sees)
	}
	s.typeText("/queue now 2\r")
	p.event(t, chat, events.MessageSteered{}.Kind(), nil)
	var left []string
	for _, m := range rows[projections.ShownMessage](t, p.process, "messages", chat) {
		if m.UserStatus == "pending" {
			left = append(left, partsOf(t, m)[0].Text)
		}
	}
	slices.Sort(left)
	is.Equal(left, []string{"2 and a half", "three"})
	// the list that was shown still has the steered message first, which is sent meanwhile
	s.awaitText("(the assistant reads it after its current step)")
	sent := submitted(t, p.process, chat)[2]
	p.api.Append(t, chat, events.MessageSending{Message: sent, Session: "ses_" + chat, EngineMessage: "msg_" + sent})
	s.typeText("/queue delete 1\r")
	s.awaitText("This message was sent already. It can no longer be changed.")
	s.typeText("/quit\r")
	s.awaitExit()
}
