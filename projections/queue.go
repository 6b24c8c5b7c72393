package projections

import (
	"slices"
	"strings"

	"pocketcoder/events"
)

// The queue of a chat holds the messages of persons and schedules that wait, in the order of their positions: first
// those that are sent at once, then those of schedules. A change of the order
// distributes the positions of these messages among them, so that nothing else in the chat moves.
//
// After a person has stopped the turn, the messages of persons in the queue are held until a person sends another one
// or sends one of them at once. The messages of schedules, webhooks and other chats go on, because no person waits for
// them here: without a person's next message they would be held for ever.

// heldByStop says why a message waits after its turn was stopped.
const heldByStop = "The turn was stopped. This message waits until you send the next one, or send one of the queue now."

// WaitsForPerson reports whether the message is not sent before a person does something.
func (m Message) WaitsForPerson() bool { return m.Held != "" && m.HeldBy == "" }

// IsHeldByStop reports whether the message waits because a person has stopped the turn.
func (m Message) IsHeldByStop() bool { return m.WaitsForPerson() && m.Held == heldByStop }

// IsHeldByLoss reports whether the message waits because events were lost that may say that it was sent. Only a person
// sends it again, and the next message of the chat does not release it.
func (m Message) IsHeldByLoss() bool { return m.WaitsForPerson() && m.Held != heldByStop }

// holdAfterLoss holds a message that OpenCode does not have. If it was sent again, it would be a new one.
func (t *tables) holdAfterLoss(m Message, reason string) {
	wasSent, session, sentAs := m.UserStatus == statusSending, m.Session, m.EngineMessage
	t.changeOutbox(&m, func() { m.UserStatus, m.Held, m.HeldBy = statusPending, reason, "" })
	m.Delivery, m.Session, m.EngineMessage, m.EngineParts = events.DeliveryQueue, "", "", "[]"
	t.messages.Put(m)
	if wasSent && m.Role == roleUser {
		t.moveBehind(m, func(Message) bool { return false })
	}
	if s, found := t.sessions.Get(session); found && s.Awaiting == sentAs {
		s.Awaiting = ""
		t.putSession(s)
	}
}

// holdQueue holds the messages of persons in a queue. None of them joins a running turn any more.
func (t *tables) holdQueue(chatID string) {
	chat, _ := t.chats.Get(chatID)
	for _, id := range strings.Fields(chat.Queue) {
		if m, _ := t.messages.Get(id); m.ByPerson && m.Held == "" {
			t.changeOutbox(&m, func() { m.Held, m.Delivery = heldByStop, events.DeliveryQueue })
			t.messages.Put(m)
		}
	}
	if chat.Queue != "" {
		t.setHolds(chatID, true)
	}
}

// releaseQueue ends the hold of a queue. It reads the messages only after a stop, because it is called for each new
// message, and a queue can be long.
func (t *tables) releaseQueue(chatID string) {
	chat, _ := t.chats.Get(chatID)
	if !chat.Holds {
		return
	}
	for _, id := range strings.Fields(chat.Queue) {
		if m, _ := t.messages.Get(id); m.IsHeldByStop() {
			t.changeOutbox(&m, func() { m.Held = "" })
			t.messages.Put(m)
		}
	}
	t.setHolds(chatID, false)
}

func (t *tables) setHolds(chatID string, holds bool) {
	chat, _ := t.chats.Get(chatID)
	chat.Holds = holds
	t.chats.Put(chat)
}

// enqueue adds a new message to the queue of its chat: to the end, or behind those of its kind that come first.
func (t *tables) enqueue(m Message) {
	switch {
	case m.Delivery == events.DeliverySteer:
		t.moveBehind(m, func(other Message) bool { return other.Delivery == events.DeliverySteer })
	case m.Schedule != "":
		t.moveBehind(m, func(other Message) bool { return other.Delivery == events.DeliverySteer || other.Schedule != "" })
	default: // its position is that of its event, behind all others: they need not be read
		t.setQueue(m.Chat, append(t.queueWithout(m), m.ID))
	}
}

// moveBehind puts a message behind the others of this kind at the front of the queue.
func (t *tables) moveBehind(m Message, isKind func(other Message) bool) {
	queue := t.queueWithout(m)
	at := slices.IndexFunc(queue, func(id string) bool {
		other, _ := t.messages.Get(id)
		return !isKind(other)
	})
	if at < 0 {
		t.move(m, "")
	} else {
		t.move(m, queue[at])
	}
}

// move puts a message before another one of the queue, or at the end if there is no such message.
func (t *tables) move(m Message, before string) {
	queue := t.queueWithout(m)
	at := slices.Index(queue, before)
	if at < 0 {
		at = len(queue)
	}
	queue = slices.Insert(queue, at, m.ID)
	t.setQueue(m.Chat, queue)
	var positions []int64
	for _, id := range queue {
		one, _ := t.messages.Get(id)
		positions = append(positions, one.Position)
	}
	slices.Sort(positions)
	for i, id := range queue {
		one, _ := t.messages.Get(id)
		one.Position = positions[i]
		t.messages.Put(one)
	}
}

// queueWithout returns the ids of the messages in the queue of the message's chat, without the message.
func (t *tables) queueWithout(m Message) []string {
	chat, _ := t.chats.Get(m.Chat)
	return slices.DeleteFunc(strings.Fields(chat.Queue), func(id string) bool { return id == m.ID })
}

func (t *tables) setQueue(chatID string, ids []string) {
	chat, _ := t.chats.Get(chatID)
	chat.Queue = strings.Join(ids, " ")
	t.chats.Put(chat)
}

// waiting returns the message of a chat that an event changes, and whether the message still waits.
func (t *tables) waiting(e events.Event, id string) (Message, bool, error) {
	m, err := t.submittedMessage(e, id)
	return m, m.UserStatus == statusPending && (m.Role == roleUser || m.IsHeldByLoss()), err
}

func edited(t *tables, e events.Event, b events.MessageEdited) error {
	m, waits, err := t.waiting(e, b.Message)
	if err == nil && waits {
		m.Submitted = encoded(b.Parts)
		t.messages.Put(m)
	}
	return err
}

func moved(t *tables, e events.Event, b events.MessageMoved) error {
	m, waits, err := t.waiting(e, b.Message)
	if err == nil && waits {
		t.move(m, b.Before)
	}
	return err
}

func steered(t *tables, e events.Event, b events.MessageSteered) error {
	m, waits, err := t.waiting(e, b.Message)
	if err == nil && waits {
		t.changeOutbox(&m, func() {
			if m.IsHeldByLoss() {
				m.Held = ""
			}
		})
		m.Delivery = events.DeliverySteer
		t.messages.Put(m)
		if m.Role == roleUser {
			t.enqueue(m)
		}
	}
	return err
}

func withdrawn(t *tables, e events.Event, b events.MessageWithdrawn) error {
	m, waits, err := t.waiting(e, b.Message)
	if err == nil && waits {
		t.setUserStatus(&m, statusWithdrawn)
		m.Removed = true
		t.messages.Put(m)
	}
	return err
}
