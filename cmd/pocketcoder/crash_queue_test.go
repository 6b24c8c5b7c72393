package main

import (
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/handlers"
	chats "pocketcoder/handlers/chat"
	"pocketcoder/projections"
)

// queueChange is a command that changes the queue of a chat. A client repeats it under the same id.
type queueChange struct {
	name    string
	command any
}

// queuedChat is a chat whose turn runs. Messages 1 to 4 wait in its queue.
type queuedChat struct {
	*process
	id string
}

// startQueuedChat starts such a chat.
func (p *process) startQueuedChat(t *testing.T, title, script string) queuedChat {
	t.Helper()
	q := queuedChat{p, p.create(t, title)}
	for i, text := range []string{script, "@@say one", "@@say two", "@@say three", "@@say four"} {
		_, err := handlers.Send(t.Context(), p.Conn, "message.submit", chats.SubmitMessage{Chat: q.id, Message: q.message(i),
			Parts: []events.Part{{Type: "text", Text: text}}})
		is.New(t).NoErr(err)
	}
	return q
}

func (q queuedChat) message(n int) string { return fmt.Sprint(q.id, "m", n) }

// changes returns commands that edit, move and delete a message. The queue then holds four, one, "two, edited".
func (q queuedChat) changes() []queueChange {
	command := func(name string) handlers.Command { return handlers.Command{ID: q.id + name} }
	first := q.message(1)
	return []queueChange{
		{"message.change", chats.ChangeMessage{Command: command("edit"), Chat: q.id, Message: q.message(2),
			Parts: []events.Part{{Type: "text", Text: "@@say two, edited"}}}},
		{"message.change", chats.ChangeMessage{Command: command("move"), Chat: q.id, Message: q.message(4), Before: &first}},
		{"message.withdraw", chats.WithdrawMessage{Command: command("delete"), Chat: q.id, Message: q.message(3)}},
	}
}

// steer is the command that sends message 3 at once.
func (q queuedChat) steer() queueChange {
	return queueChange{"message.change", chats.ChangeMessage{Command: handlers.Command{ID: q.id + "steer"}, Chat: q.id,
		Message: q.message(3), Delivery: events.DeliverySteer}}
}

// streaming starts a chat whose turn streams a text. A kill loses the turn.
func (p *process) streaming(t *testing.T, title string) queuedChat {
	t.Helper()
	q := p.startQueuedChat(t, title, longText)
	begun := partEnded("step-start")
	p.event(t, q.id, "opencode.message.part.updated", func(e events.Event) bool { return begun(t, p, e) })
	p.event(t, q.id, "message.delivered", nil) // otherwise the turn starts again and takes long
	return q
}

// sendAll sends commands one after the other, and waits for their answers.
func (q queuedChat) sendAll(t *testing.T, all ...queueChange) {
	t.Helper()
	for _, c := range all {
		_, err := handlers.Send(t.Context(), q.Conn, c.name, c.command)
		is.New(t).NoErr(err)
	}
}

// sendAgain sends commands again, as a client does that got no answer. A message that was sent meanwhile stays.
func (q queuedChat) sendAgain(t *testing.T, all ...queueChange) {
	t.Helper()
	for _, c := range all {
		if _, err := handlers.Send(t.Context(), q.Conn, c.name, c.command); err != nil {
			is.New(t).Equal(handlers.CodeOf(err), handlers.Conflict)
		}
	}
}

// awaitEmpty waits until nothing waits in the queue and no turn runs.
func (q queuedChat) awaitEmpty(t *testing.T) {
	t.Helper()
	expect.Eventually(t, "the queue is empty", func() bool {
		for _, m := range rows[projections.ShownMessage](t, q.process, "messages", q.id) {
			if m.UserStatus == "pending" || m.UserStatus == "sending" {
				return false
			}
		}
		return q.row(t, q.id).Turn == projections.TurnUser
	})
}

// checkSent checks that the messages were sent in this order, each once, and that each of the changes is stored once.
func (q queuedChat) checkSent(t *testing.T, order []int, changes ...string) {
	t.Helper()
	var want, got []string
	stored := map[string]int{}
	for _, n := range order {
		want = append(want, q.message(n))
	}
	for _, e := range q.history(t, q.id) {
		if d, err := events.Decode(e); err == nil {
			if sending, ok := d.(events.MessageSending); ok {
				got = append(got, sending.Message)
			}
		}
		stored[e.Subject.Kind]++
	}
	is := is.New(t)
	is.Equal(got, want)
	for _, kind := range changes {
		is.Equal(stored[kind], 1) // kind
	}
}

// queuesKeepTheirChanges changes the queue of a chat, and sends a message of another at once. After the incident each
// change counts once.
func queuesKeepTheirChanges(t *testing.T, p *process) (check func(*testing.T, *process)) {
	changed, steered := p.streaming(t, "changed"), p.streaming(t, "steered")
	changed.sendAll(t, changed.changes()...)
	steered.sendAll(t, steered.steer())
	p.event(t, steered.id, "message.delivered", func(e events.Event) bool {
		d, _ := events.Decode(e)
		m, ok := d.(events.MessageDelivered)
		return ok && m.Message == steered.message(3)
	})
	return func(t *testing.T, _ *process) {
		changed.sendAgain(t, changed.changes()...)
		steered.sendAgain(t, steered.steer())
		changed.awaitEmpty(t)
		steered.awaitEmpty(t)
		changed.checkSent(t, []int{0, 4, 1, 2}, "message.edited", "message.moved", "message.withdrawn")
		steered.checkSent(t, []int{0, 3, 1, 2, 4}, "message.steered")
	}
}
