package chat_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission/permissiontest"
)

func happened(t *testing.T, h *permissiontest.Handlers, data ...events.Data) {
	t.Helper()
	for _, d := range data {
		handlerstest.Happened(t, h.Log, "c1", handlerstest.Fact{Data: d})
	}
}

func submitted(id string) events.MessageSubmitted {
	return events.MessageSubmitted{Message: id, Parts: handlerstest.Say(id)}
}

func sending(id string) events.MessageSending {
	return events.MessageSending{Message: id, Session: "ses_1", EngineMessage: "msg_" + id,
		EngineParts: []string{"prt_" + id}}
}

func TestOnlyAMessageThatWaitsIsChanged(t *testing.T) {
	t.Parallel()
	const sent, failed, deleted = "This message was sent already. It can no longer be changed.",
		"This message could not be sent. It can no longer be changed.", "This message was deleted."
	edit := func(text string) chat.ChangeMessage { return chat.ChangeMessage{Parts: handlerstest.Say(text)} }
	steer := chat.ChangeMessage{Delivery: events.DeliverySteer}
	move := func(before string) chat.ChangeMessage { return chat.ChangeMessage{Before: &before} }
	prompt := events.MessageSubmitted{Message: "r", Parts: handlerstest.Say("r"), Resumes: "per_1"}
	for name, c := range map[string]struct {
		given  []events.Data // after the submitted messages a, b and s, which steers
		change chat.ChangeMessage
		of     string // a when empty
		then   []events.Data
		code   handlers.Code
		want   string
	}{
		"edited":                        {change: edit("new"), then: []events.Data{events.MessageEdited{Message: "a", Parts: handlerstest.Say("new")}}},
		"edited while held":             {given: []events.Data{events.MessageHeld{Message: "a"}}, change: edit("new"), then: []events.Data{events.MessageEdited{Message: "a", Parts: handlerstest.Say("new")}}},
		"edited back":                   {given: []events.Data{events.MessageEdited{Message: "a", Parts: handlerstest.Say("new")}}, change: edit("a"), then: []events.Data{events.MessageEdited{Message: "a", Parts: handlerstest.Say("a")}}},
		"edited into the same":          {change: edit("a")},
		"steered":                       {change: steer, then: []events.Data{events.MessageSteered{Message: "a"}}},
		"steered twice":                 {change: steer, of: "s"},
		"back into the queue":           {change: chat.ChangeMessage{Delivery: events.DeliveryQueue}, of: "s", code: handlers.Conflict, want: "This message is being sent at once. It cannot go back into the queue."},
		"left in the queue":             {change: chat.ChangeMessage{Delivery: events.DeliveryQueue}},
		"moved":                         {change: move("b"), then: []events.Data{events.MessageMoved{Message: "a", Before: "b"}}},
		"moved to the end":              {change: move(""), then: []events.Data{events.MessageMoved{Message: "a"}}},
		"moved before itself":           {change: move("a")},
		"moved before one that is sent": {given: []events.Data{sending("b")}, change: move("b"), code: handlers.Conflict, want: "The other message does not wait any more. Look at the queue again."},
		"all at once": {change: chat.ChangeMessage{Parts: handlerstest.Say("new"), Delivery: events.DeliverySteer,
			Before: new("")}, then: []events.Data{
			events.MessageEdited{Message: "a", Parts: handlerstest.Say("new")}, events.MessageSteered{Message: "a"},
			events.MessageMoved{Message: "a"}}},
		"edited once it is sent":         {given: []events.Data{sending("a")}, change: edit("new"), code: handlers.Conflict, want: sent},
		"steered once it is sent":        {given: []events.Data{sending("a")}, change: steer, code: handlers.Conflict, want: sent},
		"moved once it is sent":          {given: []events.Data{sending("a")}, change: move("b"), code: handlers.Conflict, want: sent},
		"repeated once it is sent":       {given: []events.Data{sending("a")}, change: edit("a")},
		"repeated after an edit":         {given: []events.Data{events.MessageEdited{Message: "a", Parts: handlerstest.Say("new")}, sending("a")}, change: edit("new")},
		"edited once it has failed":      {given: []events.Data{events.MessageFailed{Message: "a"}}, change: edit("new"), code: handlers.Conflict, want: failed},
		"edited once it was withdrawn":   {given: []events.Data{events.MessageWithdrawn{Message: "a"}}, change: edit("new"), code: handlers.Conflict, want: deleted},
		"a prompt that resumes a turn":   {given: []events.Data{prompt}, of: "r", change: edit("new"), code: handlers.Conflict, want: "PocketCoder wrote this message. It cannot be changed."},
		"sent once, held after a loss":   {given: []events.Data{sending("a"), events.MessageHeld{Message: "a"}}, change: steer, then: []events.Data{events.MessageSteered{Message: "a"}}},
		"steered before a loss":          {given: []events.Data{events.MessageHeld{Message: "s"}}, of: "s", change: steer, then: []events.Data{events.MessageSteered{Message: "s"}}},
		"a prompt that a loss holds":     {given: []events.Data{prompt, events.MessageHeld{Message: "r"}}, of: "r", change: steer, then: []events.Data{events.MessageSteered{Message: "r"}}},
		"the text of such a prompt":      {given: []events.Data{prompt, events.MessageHeld{Message: "r"}}, of: "r", change: edit("new"), code: handlers.Conflict, want: "PocketCoder wrote this message. It can only be sent or deleted."},
		"such a prompt, once it steers":  {given: []events.Data{prompt, events.MessageHeld{Message: "r"}, events.MessageSteered{Message: "r"}}, of: "r", change: edit("new"), code: handlers.Conflict, want: "PocketCoder wrote this message. It cannot be changed."},
		"a message that does not exist":  {of: "none", change: edit("new"), code: handlers.NotFound, want: "there is no message none in chat c1"},
		"a message of a deleted chat":    {given: []events.Data{events.Deleted{}}, change: edit("new"), code: handlers.NotFound, want: "there is no chat c1"},
		"without content":                {change: edit(" "), code: handlers.Invalid, want: "the message is empty"},
		"delivered in an unknown manner": {change: chat.ChangeMessage{Delivery: "soon"}, code: handlers.Invalid, want: `delivery: want queue or steer, got "soon"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			h := permissiontest.Open(t)
			happened(t, h, submitted("a"), submitted("b"), events.MessageSubmitted{Message: "s", Parts: handlerstest.Say("s"),
				Delivery: events.DeliverySteer})
			happened(t, h, c.given...)
			_, before := handlerstest.History(t, h.Log, "c1")
			c.change.Command, c.change.Chat, c.change.Message = handlers.Command{ID: "cmd1", Actor: handlerstest.Alice}, "c1",
				"a"
			if c.of != "" {
				c.change.Message = c.of
			}
			for range 2 { // the second time it changes nothing
				_, err := h.Chats.ChangeMessage(t.Context(), c.change)
				is.Equal(handlers.CodeOf(err), c.code)
				if err != nil {
					is.Equal(err.Error(), c.want)
				}
				_, after := handlerstest.History(t, h.Log, "c1")
				is.Equal(after[len(before):], append([]events.Data{}, c.then...))
			}
		})
	}
}

func TestAStopComesBeforeTheNextMessageOfTheQueue(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	steers := submitted("s")
	steers.Delivery = events.DeliverySteer
	happened(t, h, submitted("a"), steers)
	seen, err := h.Log.Last(t.Context())
	is.NoErr(err)
	by := handlers.Command{Actor: handlerstest.Alice}
	_, err = h.Chats.AbortTurn(t.Context(), chat.AbortTurn{Command: by, Chat: "c1"})
	is.NoErr(err)
	send := func(seen uint64) error {
		_, err := h.Chats.ClaimMessage(t.Context(), chat.ClaimMessage{Chat: "c1", Sending: sending("a"), Seen: seen})
		return err
	}
	is.Equal(handlers.CodeOf(send(seen)), handlers.Conflict) // it was chosen before the stop
	// the turn that it was to join is over, so that a person can send it at once again
	_, err = h.Chats.ChangeMessage(t.Context(), chat.ChangeMessage{Command: by, Chat: "c1", Message: "s",
		Delivery: events.DeliverySteer})
	is.NoErr(err)
	_, all := handlerstest.History(t, h.Log, "c1")
	is.Equal(all[len(all)-1], events.MessageSteered{Message: "s"})
	seen, err = h.Log.Last(t.Context())
	is.NoErr(err)
	is.NoErr(send(seen))
}

func TestAWithdrawnMessageIsNotSentNorSubmittedAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	happened(t, h, submitted("a"), submitted("b"), sending("b"))
	withdraw := func(id string) (uint64, error) {
		return h.Chats.WithdrawMessage(t.Context(),
			chat.WithdrawMessage{Command: handlers.Command{Actor: handlerstest.Alice}, Chat: "c1", Message: id})
	}
	seq, err := withdraw("a")
	is.NoErr(err)
	repeated, err := withdraw("a")
	is.NoErr(err)
	is.Equal(repeated, seq)
	_, err = withdraw("b")
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	_, err = h.Chats.ClaimMessage(t.Context(), chat.ClaimMessage{Chat: "c1", Sending: sending("a"), Seen: seq})
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	_, _, err = h.Chats.SubmitMessage(t.Context(), chat.SubmitMessage{Chat: "c1", Message: "a",
		Parts: handlerstest.Say("a")})
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	is.Equal(err.Error(), "message a was deleted")
}

func TestAMessageIsNotSentFromAQueueThatHasChanged(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	happened(t, h, submitted("a"), submitted("b"))
	seen, err := h.Log.Last(t.Context())
	is.NoErr(err)
	send := func(id string) error {
		_, err := h.Chats.ClaimMessage(t.Context(), chat.ClaimMessage{Chat: "c1", Sending: sending(id), Seen: seen})
		return err
	}
	moved, err := h.Chats.ChangeMessage(t.Context(), chat.ChangeMessage{Chat: "c1", Message: "b", Before: new("a")})
	is.NoErr(err)
	is.Equal(handlerstest.Refusal(t, send("a")), handlers.Conflict)
	seen = moved
	is.NoErr(send("b"))
	_, err = h.Chats.ChangeMessage(t.Context(), chat.ChangeMessage{Chat: "c1", Message: "a",
		Parts: handlerstest.Say("new")})
	is.NoErr(err)
	is.NoErr(send("b")) // again under other ids, because OpenCode has lost the session
}

func TestAnEditAndTheSendingNeverBothWin(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	other := &chat.Chats{Log: h.Log} // of another process, so that they meet in the log
	for i := range 40 {
		id := fmt.Sprintf("m%d", i)
		happened(t, h, submitted(id))
		seen, err := h.Log.Last(t.Context())
		is.NoErr(err)
		var edited, sent error
		var both sync.WaitGroup
		both.Go(func() {
			_, edited = h.Chats.ChangeMessage(t.Context(), chat.ChangeMessage{Chat: "c1", Message: id,
				Parts: handlerstest.Say("new")})
		})
		both.Go(func() {
			_, sent = other.ClaimMessage(t.Context(), chat.ClaimMessage{Chat: "c1", Sending: sending(id), Seen: seen})
		})
		both.Wait()
		is.True((edited == nil) != (sent == nil))
	}
}
