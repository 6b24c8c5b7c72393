package chat_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
)

func TestWhatAnAccountHasSeenOnlyMovesForward(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	h := &chat.Chats{Log: log}
	id, first, err := h.Create(t.Context(), chat.Create{Title: "one", User: "ann"})
	is.NoErr(err)
	seen := func(user, chatID string, seq uint64) (uint64, error) {
		return h.MarkSeen(t.Context(), chat.MarkSeen{Command: handlers.Command{Actor: events.UserActor(user)}, User: user,
			Chat: chatID, Seq: seq})
	}
	at, err := seen("ann", id, first)
	is.NoErr(err)
	is.Equal(at, first+1)
	for _, seq := range []uint64{first, 0} { // as another device reports it late
		repeated, err := seen("ann", id, seq)
		is.NoErr(err)
		is.Equal(repeated, at)
	}
	h = &chat.Chats{Log: log} // after a restart
	repeated, err := seen("ann", id, first)
	is.NoErr(err)
	is.Equal(repeated, at)
	other, err := seen("bob", id, first)
	is.NoErr(err)
	is.Equal(other, at+1)
	further, err := seen("ann", id, other)
	is.NoErr(err)
	is.Equal(further, other+1)

	_, err = seen("ann", id, further+1)
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid) // what did not happen yet cannot be seen
	_, err = seen("ann", "none", first)
	is.Equal(handlerstest.Refusal(t, err), handlers.NotFound)
	_, err = h.Delete(t.Context(), chat.Delete{Chat: id})
	is.NoErr(err)
	_, err = seen("ann", id, further)
	is.Equal(handlerstest.Refusal(t, err), handlers.NotFound)
	last, err := log.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, further+2) // nothing else was stored
}
