package main

import (
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// queueChange is a command that changes the queue of a chat. A client repeats it under the same id.
type queueChange struct {
	message string
	fields  record // nil to delete it
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
		_, err := p.Create(t.Context(), "messages", messageOf(q.id, q.message(i), text))
		is.New(t).NoErr(err)
	}
	return q
}

func (q queuedChat) message(n int) string { return fmt.Sprint(q.id, "m", n) }

// changes returns commands that edit, move and delete a message. The queue then holds four, one, "two, edited".
func (q queuedChat) changes() []queueChange {
	return []queueChange{
		{q.message(2), record{"parts": []events.Part{{Type: "text", Text: "@@say two, edited"}}}},
		{q.message(4), record{"before": q.message(1)}},
		{q.message(3), nil},
	}
}

// steer is the command that sends message 3 at once.
func (q queuedChat) steer() queueChange {
	return queueChange{q.message(3), record{"delivery": events.DeliverySteer}}
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

func (q queuedChat) change(t *testing.T, c queueChange) error {
	if c.fields == nil {
		return q.Delete(t.Context(), "messages", c.message)
	}
	return q.Update(t.Context(), "messages", c.message, c.fields)
}

// sendAll sends commands one after the other, and waits for their answers.
func (q queuedChat) sendAll(t *testing.T, all ...queueChange) {
	t.Helper()
	for _, c := range all {
		err := q.change(t, c)
		is.New(t).NoErr(err)
	}
}

// sendAgain sends commands again, as a client does that got no answer. A message that was sent meanwhile stays.
func (q queuedChat) sendAgain(t *testing.T, all ...queueChange) {
	t.Helper()
	for _, c := range all {
		if code := handlers.CodeOf(q.change(t, c)); code != "" {
			is.New(t).True(code == handlers.Conflict || code == handlers.NotFound)
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
