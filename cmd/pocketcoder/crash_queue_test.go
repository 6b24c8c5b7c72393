package main

import (
	"context"
	"fmt"
	"slices"
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
	q := p.startQueuedChat(t, title, "@@text n=4000 delay=200")
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

// sendUnanswered sends commands without waiting for their answers.
func (q queuedChat) sendUnanswered(all ...queueChange) {
	conn := q.Conn
	go func() {
		for _, c := range all {
			_, _ = handlers.Send(context.Background(), conn, c.name, c.command)
		}
	}()
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

// The tests of kills share a system, and the kills: each start of OpenCode takes seconds.
func TestKillLosesAndRepeatsNothingOfQueuesWorkersAndBudgets(t *testing.T) {
	t.Parallel()
	runStages(t, start(t, "--allow", "todowrite: *"), stage{"queues and workers", killsOfQueuesAndWorkers},
		stage{"budgets", func(t *testing.T, p *process) {
			p.args = append(p.args, "--max-turns", "1") // from the next start on, for the stage after this
			killsOfBudgets(t, p)
		}}, stage{"accounts take turns", killBetweenTurns})
}

// Whenever everything is killed, a queue has each change once, each worker has one result, and its parent gets it once.
// The package bridge/workers tests the latter for every event, with an OpenCode that is a script.
func killsOfQueuesAndWorkers(t *testing.T, p *process) {
	changed := []string{"message.edited", "message.moved", "message.withdrawn"}
	kill := func() {
		p.kill()
		p.restart()
	}

	answered, stored, unknown := p.streaming(t, "answered"), p.streaming(t, "stored"), p.streaming(t, "unknown")
	answered.sendAll(t, answered.changes()...)
	stored.sendAll(t, stored.changes()[:2]...)
	chiefs := p.playWorkers(t, workerPlays[0])
	unknown.sendUnanswered(unknown.changes()...)
	stored.sendUnanswered(stored.changes()[2])
	p.event(t, stored.id, "message.withdrawn", nil)
	kill()
	for _, q := range []queuedChat{answered, stored, unknown} {
		q.sendAgain(t, q.changes()...)
		q.awaitEmpty(t)
	}
	answered.checkSent(t, []int{0, 4, 1, 2}, changed...)
	stored.checkSent(t, []int{0, 4, 1, 2}, changed...)
	p.awaitWorkersDone(t, chiefs)

	joined, steered := p.streaming(t, "joined"), p.streaming(t, "steered")
	joined.sendAll(t, joined.steer())
	p.event(t, joined.id, "message.delivered", func(e events.Event) bool { return delivers(e, joined.message(3)) })
	chiefs = p.playWorkers(t, workerPlays[1])
	steered.sendUnanswered(steered.steer())
	p.event(t, steered.id, "message.steered", nil)
	kill()
	for _, q := range []queuedChat{joined, steered} {
		q.sendAgain(t, q.steer())
		q.awaitEmpty(t)
		q.checkSent(t, []int{0, 3, 1, 2, 4}, "message.steered")
	}
	p.awaitWorkersDone(t, chiefs)

	next := p.startQueuedChat(t, "next", bash(fmt.Sprintf(shortCommand, "next")))
	ask := p.awaitRequestOfPerson(t, next.id, 0)
	next.sendAll(t, next.changes()...)
	chiefs = p.playWorkers(t, workerPlays[2])
	p.decide(t, next.id, ask, events.Denied, "no")
	n := 0
	p.event(t, next.id, "message.sending", func(events.Event) bool { n++; return n == 2 })
	seen := p.allEvents(t)
	kill()
	next.sendAgain(t, next.changes()...)
	next.awaitEmpty(t)
	next.checkSent(t, []int{0, 4, 1, 2}, changed...)
	p.awaitWorkersDone(t, chiefs)
	p.check(t, seen)
	p.checkWorkers(t)
}

func delivers(e events.Event, message string) bool {
	d, _ := events.Decode(e)
	m, ok := d.(events.MessageDelivered)
	return ok && m.Message == message
}

// killBetweenTurns has one turn at a time. The accounts take turns, and so do the chats of an account, also across a
// kill. The messages of a chat keep their order.
func killBetweenTurns(t *testing.T, p *process) {
	is := is.New(t)
	first := p.create(t, "first")
	p.submit(t, first, "@@text n=4000 delay=200")
	p.event(t, first, "message.delivered", nil)
	ann, bob := p.account(t, "user"), p.account(t, "user")
	var all []string
	for _, user := range []string{ann.id, bob.id, ann.id, bob.id} {
		a, err := handlers.Send(t.Context(), p.Conn, "chat.create", chats.Create{Title: "turns", User: user})
		is.NoErr(err)
		all = append(all, a.ID)
	}
	killed := all[3]
	defer func() {
		if t.Failed() {
			t.Log(p.describeChat(killed))
		}
	}()
	var want []string
	for i := range 3 {
		for _, chat := range all {
			script := fmt.Sprintf("@@say %d", i)
			if chat == killed && i == 0 {
				script = "@@text n=4000 delay=200"
			}
			want = append(want, p.submit(t, chat, script))
		}
	}
	_, err := handlers.Send(t.Context(), p.Conn, "turn.abort", chats.AbortTurn{Chat: first})
	is.NoErr(err)
	begun := partEnded("step-start")
	p.event(t, killed, "opencode.message.part.updated", func(e events.Event) bool { return begun(t, p, e) })
	p.event(t, killed, "message.delivered", nil) // otherwise the turn starts again
	p.kill()
	p.restart()
	var got []string
	for _, chat := range all {
		queuedChat{p, chat}.awaitEmpty(t)
	}
	for _, e := range p.allEvents(t) {
		d, _ := events.Decode(e)
		if sending, ok := d.(events.MessageSending); ok && slices.Contains(all, e.Subject.ID) {
			got = append(got, sending.Message)
		}
	}
	is.Equal(got, want)
}
