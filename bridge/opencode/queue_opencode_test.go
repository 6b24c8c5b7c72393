package opencode_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// put submits a message and returns its id.
func (w *bridgedOpenCode) put(chatID, text, delivery string) string {
	w.t.Helper()
	id, seq, err := w.outbox.Chats.SubmitMessage(w.t.Context(),
		chat.SubmitMessage{Chat: chatID, Parts: textParts(text), Delivery: delivery})
	w.must(err)
	w.must(w.model.Wait(w.t.Context(), seq))
	return id
}

func textParts(text string) []events.Part { return []events.Part{{Type: "text", Text: text}} }

func (w *bridgedOpenCode) change(c chat.ChangeMessage) {
	w.t.Helper()
	_, err := w.outbox.Chats.ChangeMessage(w.t.Context(), c)
	w.must(err)
}

// asking waits for a request of a chat and returns it.
func (w *bridgedOpenCode) asking(chat string) projections.PendingRequest {
	w.t.Helper()
	var all []projections.PendingRequest
	expect.Eventually(w.t, "it asks", func() bool {
		var err error
		all, err = w.model.PendingRequests(w.t.Context())
		w.must(err)
		all = slices.DeleteFunc(all, func(p projections.PendingRequest) bool { return p.Chat != chat })
		return len(all) > 0
	})
	return all[0]
}

func (w *bridgedOpenCode) approve(p projections.PendingRequest) {
	w.t.Helper()
	_, err := w.outbox.Permissions.Decide(w.t.Context(), permission.Decide{Chat: p.Chat, Permission: p.EnginePermission,
		Decision: events.Authorized})
	w.must(err)
}

// conversation is what OpenCode has of a chat's session, in its order: the texts, > before those of a person.
func (w *bridgedOpenCode) conversation(chatID string) string {
	w.t.Helper()
	messages, err := w.client.Messages(w.t.Context(), w.row(chatID).Session)
	w.must(err)
	var texts []string
	for _, raw := range messages {
		var m struct {
			Info  struct{ Role string }
			Parts []struct{ Type, Text string }
		}
		b, err := json.Marshal(raw)
		w.must(err)
		w.must(json.Unmarshal(b, &m))
		for _, p := range m.Parts {
			if p.Type == "text" && m.Info.Role == "user" {
				p.Text = ">" + p.Text
			}
			if p.Type == "text" {
				texts = append(texts, p.Text)
			}
		}
	}
	return strings.Join(texts, " ")
}

func (w *bridgedOpenCode) delivered(message string) {
	w.t.Helper()
	expect.Eventually(w.t, "OpenCode has message "+message, func() bool {
		m, _, err := w.model.Message(w.t.Context(), message)
		w.must(err)
		return m.UserStatus == "delivered"
	})
}

const asksFirst = "@@call bash {\"command\":\"true\",\"description\":\"d\"}\n@@next\n@@say first"

func queueIsAnsweredInTheChangedOrder(t *testing.T, w *bridgedOpenCode) {
	is := is.New(t)
	chatID := w.chat()
	w.put(chatID, asksFirst, "")
	request := w.asking(chatID)
	a, b, c, d := w.put(chatID, "@@say a", ""), w.put(chatID, "@@say b", ""), w.put(chatID, "@@say c", ""),
		w.put(chatID, "@@say d", events.DeliveryQueue)
	w.change(chat.ChangeMessage{Chat: chatID, Message: d, Before: &a})
	w.change(chat.ChangeMessage{Chat: chatID, Message: a, Parts: textParts("@@say edited")})
	_, err := w.outbox.Chats.WithdrawMessage(t.Context(), chat.WithdrawMessage{Chat: chatID, Message: b})
	is.NoErr(err)
	w.change(chat.ChangeMessage{Chat: chatID, Message: c, Delivery: events.DeliverySteer})
	w.delivered(c) // while the turn waits for a person
	_, err = w.outbox.Chats.ChangeMessage(t.Context(), chat.ChangeMessage{Chat: chatID, Message: c,
		Parts: textParts("too late")})
	is.Equal(handlers.CodeOf(err), handlers.Conflict)
	w.approve(request)
	expect.Eventually(t, "all is answered", func() bool { return w.row(chatID).Turn == projections.TurnUser })
	// c came after the first step
	is.Equal(w.conversation(chatID), ">"+asksFirst+" >@@say c c >@@say d d >@@say edited edited")
}

func abortEndsATurnWithASteeredMessage(t *testing.T, w *bridgedOpenCode) {
	for name, c := range map[string]struct {
		running  string
		approve  bool
		messages int // when it runs
	}{
		"that writes":     {"@@text n=5000 delay=20", false, 2}, // OpenCode says nothing about the steered message
		"with a subagent": {`@@call task {"description":"x","prompt":"@@text n=5000 delay=20","subagent_type":"general"}`, true, 4},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			chatID := w.chat()
			w.put(chatID, c.running, "")
			if c.approve {
				w.approve(w.asking(chatID))
			}
			expect.Eventually(t, "it runs", func() bool {
				_, ids := w.shown(chatID)
				return len(ids) >= c.messages
			})
			w.delivered(w.put(chatID, "@@say steered", events.DeliverySteer))
			_, err := w.outbox.Chats.AbortTurn(t.Context(), chat.AbortTurn{Chat: chatID})
			w.must(err)
			expect.Eventually(t, "the turn is over", func() bool { return w.row(chatID).Turn == projections.TurnUser })
			w.put(chatID, "@@say next", "")
			expect.Eventually(t, "the next is answered", func() bool {
				return strings.HasSuffix(w.conversation(chatID), ">@@say next next")
			})
			expect.Eventually(t, "the turn is over", func() bool { return w.row(chatID).Turn == projections.TurnUser })
		})
	}
}

// A turn whose later step fails is not repeated, neither then nor after a reconnect: its command ran once.
func aMessageIsNotSentAgainOnceItsTurnHasDoneSomething(t *testing.T, w *bridgedOpenCode) {
	is := is.New(t)
	disconnect := w.connect()
	chatID := w.chat()
	const fails = "@@call bash {\"command\":\"echo ran >> ran\",\"description\":\"d\"}\n@@next\n@@status 400 broken"
	w.say(chatID, fails)
	requests := strings.Count(w.requests(), "@@status")
	disconnect()
	defer w.connect()() // compares with OpenCode, and sends unanswered messages again
	w.say(chatID, "@@say next")
	is.Equal(w.conversation(chatID), ">"+fails+" >@@say next next")
	is.Equal(w.file("ran"), "ran\n")
	is.Equal(strings.Count(w.requests(), "@@status"), requests+1) // the next message has it in its history
	sent := 0
	_, err := w.log.Fold(t.Context(), events.ChatSubject(chatID, events.MessageSending{}.Kind()), 0,
		func(events.Event) error { sent++; return nil })
	is.NoErr(err)
	is.Equal(sent, 2)
}
