package main

import (
	"slices"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

func TestQueueIsChangedInTheTerminal(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, bash("printf first >/dev/null"))
	request := p.awaitRequest(t, chat, 0)
	s := p.startConversation(t, chat)
	s.awaitText("allow it?")
	s.typeText("/queue\r")
	s.awaitText("(no message waits)")
	s.typeText("/queue delete 1\r")
	s.awaitText("list the queue first")
	for _, text := range []string{"one", "two", "three"} {
		p.submit(t, chat, "@@say "+text)
	}
	s.typeText("/queue\r")
	s.awaitText("  3  @@say three")
	for _, c := range []struct{ types, sees string }{
		{"/queue up 1", "this message is the first already"},
		{"/queue up 4", "choose a number from 1 to 3"},
		{"/queue drop 2", `"drop" is not known`},
		{"/queue delete two", "write /queue, or /queue with edit N TEXT"},
		{"/queue delete 2 3", "write /queue, or /queue with edit N TEXT"},
		{"/queue edit 2", "write the new text of the message"},
		{"/queue edit 2 @@say 2 and a half", "  2  @@say 2 and a half"},
		{"/queue up 3", "  2  @@say three"},
		{"/queue delete 1", "  1  @@say three"},
	} {
		s.typeText(c.types + "\r")
		s.awaitText(c.sees)
	}
	s.typeText("/queue now 2\r")
	// it may have been sent before it is listed
	p.event(t, chat, "message.steered", func(events.Event) bool { return true })
	// the list that was shown still has three: it is sent, so that 1 is no message that waits
	p.decide(t, chat, request, events.Authorized, "")
	p.turnEnds(t, chat)
	expect.Eventually(t, "the queue is empty", func() bool { return len(queued(t, p, chat)) == 0 })
	s.typeText("/queue delete 1\r")
	s.awaitText("This message was sent already. It can no longer be changed.")
	want := ""
	for _, m := range rows[projections.ShownMessage](t, p, "messages", chat) {
		for _, part := range partsOf(t, m) {
			if m.Role == "user" {
				want += part.Text + "|"
			}
		}
	}
	expect.Contains(t, want, "|@@say 2 and a half|@@say three|")
	expect.Lacks(t, want, "@@say one")
	is.Equal(p.row(t, chat).Turn, projections.TurnUser)
	s.typeText("/quit\r")
	s.awaitExit()
}

func queued(t *testing.T, p *process, chat string) []projections.ShownMessage {
	t.Helper()
	all := rows[projections.ShownMessage](t, p, "messages", chat)
	return slices.DeleteFunc(all, func(m projections.ShownMessage) bool {
		return m.UserStatus != "pending"
	})
}
