package chat

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// ChangeMessage changes a person's message that waits in the queue of its chat. An empty field does not change.
type ChangeMessage struct {
	handlers.Command
	Chat     string        `json:"chat"`
	Message  string        `json:"message"`
	Parts    []events.Part `json:"parts,omitempty"`
	Delivery string        `json:"delivery,omitempty"` // events.DeliverySteer sends the message at once
	// the waiting message that it is put before; "" for the end of the queue
	Before *string `json:"before,omitempty"`
}

// WithdrawMessage deletes a person's message that waits in the queue of its chat.
type WithdrawMessage struct {
	handlers.Command
	Chat    string `json:"chat"`
	Message string `json:"message"`
}

// ClaimMessage records that the outbox is about to send a message (message.sending). After that, the message cannot be
// changed or withdrawn. Only the outbox sends this command.
type ClaimMessage struct {
	handlers.Command
	Chat    string
	Sending events.MessageSending
	Seen    uint64 // the caller knows all changes of the queue up to this sequence
}

// messageState holds the messages of a chat, and where its queue was changed.
type messageState struct {
	handlers.ChatState
	messages map[string]*message
	changed  uint64            // sequence of the last change of the queue
	causes   map[string]uint64 // commands that changed the queue, and where
}

// message is a submitted message. Its content is only compared, so it is kept as a hash.
type message struct {
	state     waitState
	submitted uint64            // sequence of the event
	parts     [sha256.Size]byte // of their JSON, as submitted
	now       [sha256.Size]byte // of their JSON after edits
	last      uint64            // sequence of its last change
	steer     bool
	internal  bool // PocketCoder wrote it: to resume a turn, or to report on delegates
	held      bool // after a loss of events, until a person sends it
}

// waitState is how the wait of a message has ended.
type waitState int

const (
	waiting waitState = iota
	sent
	failed
	withdrawn
)

func hashOf(parts []events.Part) [sha256.Size]byte {
	b, err := json.Marshal(parts)
	if err != nil {
		panic(err) // parts are texts
	}
	return sha256.Sum256(b)
}

func (s *messageState) Apply(e events.Event) {
	s.ChatState.Apply(e)
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.MessageSubmitted:
		hash := hashOf(d.Parts)
		s.messages[d.Message] = &message{
			submitted: e.Seq, last: e.Seq, parts: hash, now: hash, steer: d.Delivery == events.DeliverySteer, internal: d.Resumes != "" || d.IsReport(),
		}
	case events.MessageSending:
		s.end(d.Message, sent)
	case events.MessageFailed:
		s.end(d.Message, failed)
	case events.MessageEdited:
		s.change(e, d.Message, func(m *message) { m.now = hashOf(d.Parts) })
	case events.MessageMoved:
		s.change(e, d.Message, func(*message) {})
	case events.MessageSteered:
		s.change(e, d.Message, func(m *message) { m.steer, m.held = true, false })
	case events.MessageWithdrawn:
		s.change(e, d.Message, func(m *message) { m.state = withdrawn })
	case events.MessageHeld:
		if d.IsAfterLoss() {
			s.change(e, d.Message, (*message).holdAfterLoss)
		}
	case events.AbortRequested:
		if d.HoldsQueue(e) {
			s.hold(e)
		}
	}
}

// hold applies a stop of the turn, after which the queue waits. None of its messages joins a running turn any more.
func (s *messageState) hold(e events.Event) {
	s.changed = e.Seq
	for _, m := range s.messages {
		if m.state == waiting {
			m.steer = false
		}
	}
}

// holdAfterLoss holds a message if the log does not show whether it was sent.
func (m *message) holdAfterLoss() {
	if m.state == waiting || m.state == sent {
		m.state, m.steer, m.held = waiting, false, true
	}
}

func (s *messageState) end(id string, state waitState) {
	if m := s.messages[id]; m != nil && m.state == waiting {
		m.state = state
	}
}

// change applies a change of the queue.
func (s *messageState) change(e events.Event, id string, apply func(*message)) {
	s.changed = e.Seq
	if e.Cause != "" {
		s.causes[e.Cause] = e.Seq
	}
	if m := s.messages[id]; m != nil {
		m.last = e.Seq
		apply(m)
	}
}

// messagesOf returns the cached fold of a chat's messages.
func (h *Chats) messagesOf(ctx context.Context, chat string) *handlers.Fold[*messageState] {
	return h.messages.Get(ctx, chat, func() *handlers.Fold[*messageState] {
		s := &messageState{messages: map[string]*message{}, causes: map[string]uint64{}}
		return handlers.NewFold(s, events.ChatSubject(chat, "message.*"),
			events.ChatSubject(chat, events.AbortRequested{}.Kind()), handlers.ChatFilter(chat))
	})
}

// waiting returns a message that waits, or the refusal of a command to change it.
func (s *messageState) waiting(chat, id string) (*message, error) {
	if err := s.Missing(chat); err != nil {
		return nil, err
	}
	m := s.messages[id]
	switch {
	case m == nil:
		return nil, handlers.Refuse(handlers.NotFound, "there is no message %s in chat %s", id, chat)
	case m.internal && !m.held:
		return nil, handlers.Refuse(handlers.Conflict, "PocketCoder wrote this message. It cannot be changed.")
	case m.state == sent:
		return nil, handlers.Refuse(handlers.Conflict, "This message was sent already. It can no longer be changed.")
	case m.state == failed:
		return nil, handlers.Refuse(handlers.Conflict, "This message could not be sent. It can no longer be changed.")
	case m.state == withdrawn:
		return nil, handlers.Refuse(handlers.Conflict, "This message was deleted.")
	}
	return m, nil
}

// ChangeMessage stores nothing if nothing changes. seq is then the sequence of the last change.
func (h *Chats) ChangeMessage(ctx context.Context, c ChangeMessage) (seq uint64, err error) {
	if c.Parts != nil {
		if err := CheckParts(c.Parts); err != nil {
			return 0, err
		}
	}
	if err := checkDelivery(c.Delivery); err != nil {
		return 0, err
	}
	if err := handlers.CheckChat(c.Chat); err != nil {
		return 0, err
	}
	return h.messagesOf(ctx, c.Chat).Execute(ctx, h.Log, c.Command,
		func(s *messageState) ([]events.Event, uint64, error) {
			if seq := s.causes[c.ID]; c.ID != "" && seq != 0 {
				return nil, seq, nil
			}
			m, changes, err := s.changesOf(c)
			if err != nil {
				return nil, 0, err
			}
			all := make([]events.Event, len(changes))
			for i, d := range changes {
				if all[i], err = events.New(c.Chat, c.Actor, d); err != nil {
					return nil, 0, err
				}
			}
			return all, m.last, nil
		})
}

// changesOf decides what a command changes. A client that repeats the content of a message that was sent changes
// nothing.
func (s *messageState) changesOf(c ChangeMessage) (m *message, changes []events.Data, err error) {
	if m = s.messages[c.Message]; m != nil && m.state == sent && c.isContent(m) {
		return m, nil, s.Missing(c.Chat)
	}
	if m, err = s.waiting(c.Chat, c.Message); err != nil {
		return nil, nil, err
	}
	if m.internal && (c.Parts != nil || c.Before != nil) {
		return nil, nil, handlers.Refuse(handlers.Conflict, "PocketCoder wrote this message. It can only be sent or deleted.")
	}
	if c.Parts != nil && hashOf(c.Parts) != m.now {
		changes = append(changes, events.MessageEdited{Message: c.Message, Parts: c.Parts})
	}
	switch {
	case c.Delivery == events.DeliverySteer && !m.steer:
		changes = append(changes, events.MessageSteered{Message: c.Message})
	case c.Delivery == events.DeliveryQueue && m.steer:
		return nil, nil, handlers.RefuseField(handlers.Conflict, "delivery",
			"This message is being sent at once. It cannot go back into the queue.")
	}
	if c.Before != nil && *c.Before != c.Message {
		if *c.Before != "" {
			if _, err := s.waiting(c.Chat, *c.Before); err != nil {
				return nil, nil, handlers.RefuseField(handlers.Conflict, "before",
					"The other message does not wait any more. Look at the queue again.")
			}
		}
		changes = append(changes, events.MessageMoved{Message: c.Message, Before: *c.Before})
	}
	return m, changes, nil
}

// isContent reports whether a command has nothing but the content of a message.
func (c ChangeMessage) isContent(m *message) bool {
	hash := hashOf(c.Parts)
	return c.Before == nil && c.Delivery == "" && (hash == m.parts || hash == m.now)
}

// WithdrawMessage has no effect on a message that was withdrawn before.
func (h *Chats) WithdrawMessage(ctx context.Context, c WithdrawMessage) (seq uint64, err error) {
	if err := handlers.CheckChat(c.Chat); err != nil {
		return 0, err
	}
	return h.messagesOf(ctx, c.Chat).ExecuteOne(ctx, h.Log, c.Chat, c.Command,
		func(s *messageState) (events.Data, uint64, error) {
			if m := s.messages[c.Message]; m != nil && m.state == withdrawn {
				return nil, m.last, s.Missing(c.Chat)
			}
			if _, err := s.waiting(c.Chat, c.Message); err != nil {
				return nil, 0, err
			}
			return events.MessageWithdrawn{Message: c.Message}, 0, nil
		})
}

// Waiting returns the ids of the messages in the queue of a chat, in the order in which they were submitted.
func (h *Chats) Waiting(ctx context.Context, chat string) (ids []string, err error) {
	err = h.messagesOf(ctx, chat).Read(ctx, h.Log, func(s *messageState) error {
		for id, m := range s.messages {
			if m.state == waiting && !m.internal {
				ids = append(ids, id)
			}
		}
		slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(s.messages[a].submitted, s.messages[b].submitted) })
		return nil
	})
	return ids, err
}

// ClaimMessage refuses a message that has failed or was withdrawn. It refuses a message that waits if the queue has
// changed since Seen. A message that was sent before gets further ids.
func (h *Chats) ClaimMessage(ctx context.Context, c ClaimMessage) (seq uint64, err error) {
	return h.messagesOf(ctx, c.Chat).ExecuteOne(ctx, h.Log, c.Chat, c.Command,
		func(s *messageState) (events.Data, uint64, error) {
			if err := s.Missing(c.Chat); err != nil {
				return nil, 0, err
			}
			switch m := s.messages[c.Sending.Message]; {
			case m == nil:
				return nil, 0, handlers.Refuse(handlers.NotFound, "there is no message %s in chat %s", c.Sending.Message, c.Chat)
			case m.state == failed || m.state == withdrawn:
				return nil, 0, handlers.Refuse(handlers.Conflict, "message %s does not wait any more", c.Sending.Message)
			case m.state == waiting && s.changed > c.Seen:
				return nil, 0, handlers.Refuse(handlers.Conflict, "the queue of chat %s changed at %d, after %d", c.Chat, s.changed,
					c.Seen)
			}
			return c.Sending, 0, nil
		})
}

func checkDelivery(delivery string) error {
	switch delivery {
	case "", events.DeliveryQueue, events.DeliverySteer:
		return nil
	}
	return handlers.RefuseField(handlers.Invalid, "delivery", "delivery: want %s or %s, got %.40q", events.DeliveryQueue,
		events.DeliverySteer, delivery)
}
