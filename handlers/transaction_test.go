package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/record"
)

// everything gives one command of each kind, on what those before it made.
func everything(h *permissiontest.Handlers) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, seq, err := h.Chats.Create(ctx, chat.Create{Command: handlers.Command{Actor: handlerstest.Alice}, Chat: "c2",
			Title: "t"}); err != nil || seq != 0 {
			return fmt.Errorf("create: %d %w", seq, err)
		}
		_, _, err1 := h.Chats.SubmitMessage(ctx, chat.SubmitMessage{Chat: "c2", Message: "m1",
			Parts: handlerstest.Say("one")})
		_, _, err2 := h.Chats.SubmitMessage(ctx, chat.SubmitMessage{Chat: "c2", Message: "m2",
			Parts: handlerstest.Say("two")})
		_, err3 := h.Chats.Update(ctx, chat.Update{Chat: "c2", Title: new("t")}) // is so already
		_, err4 := h.Chats.Update(ctx, chat.Update{Chat: "c2", Archived: new(true)})
		_, err5 := h.Permissions.Decide(ctx, permission.Decide{Command: handlers.Command{Actor: handlerstest.Alice},
			Chat: "c1", Permission: "per_1", Decision: events.Denied})
		_, err6 := h.Chats.AnswerQuestion(ctx, chat.AnswerQuestion{Chat: "c1", Question: "que_1", Index: 1,
			Answers: []string{"yes"}})
		_, status, seq, err7 := permissiontest.GateOn(h).Submit(ctx, permissiontest.SubmitBash("i1", "git status"))
		_, _, err8 := h.Records.Save(ctx, record.Save{Collection: "sops", Record: "s1", New: true,
			Set: handlerstest.Fields(`{"name":"n"}`)})
		_, _, err9 := h.Records.Save(ctx, record.Save{Collection: "sops", Record: "s1",
			Set: handlerstest.Fields(`{"version":"2"}`)})
		_, _, err10 := h.Chats.Fork(ctx, chat.Fork{Chat: "c2", Into: "c3"})
		_, err11 := h.Chats.Delete(ctx, chat.Delete{Chat: "c2"})
		if status != "authorized" || seq != 0 {
			return fmt.Errorf("request: %s %d", status, seq)
		}
		return errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9, err10, err11)
	}
}

func TestTransactionIsAllOrNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	before, err := h.Log.Last(t.Context())
	is.NoErr(err)
	wrong := errors.New("wrong")
	_, err = handlers.Transaction(t.Context(), h.Log, func(ctx context.Context) error {
		is.NoErr(everything(h)(ctx))
		return wrong
	})
	is.True(errors.Is(err, wrong))
	last, err := h.Log.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, before)

	// What did not happen is not remembered either: the same is decided the same way.
	seq, err := handlers.Transaction(t.Context(), h.Log, everything(h))
	is.NoErr(err)
	last, err = h.Log.Last(t.Context())
	is.NoErr(err)
	is.Equal(seq, last)
	is.Equal(last, before+14)
	_, data := handlerstest.History(t, h.Log, "c2")
	is.Equal(data, []events.Data{
		events.ChatCreated{Title: "t", Engine: "local"}, events.MessageSubmitted{Message: "m1",
			Parts: handlerstest.Say("one")},
		events.MessageSubmitted{Message: "m2", Parts: handlerstest.Say("two")}, events.ChatUpdated{Archived: new(true)},
		events.ForkRequested{Chat: "c3"}, events.AbortRequested{}, events.Deleted{},
	})
	is.Equal(handlerstest.Records(t, h.Log, "sops"), []string{`s1 saved {"fields":{"name":"n"}}`,
		`s1 saved {"fields":{"name":"n","version":"2"}}`})
}

func TestTransactionThatChangesNothingGivesThePlaceOfWhatIsTrue(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	first, err := h.Chats.Update(t.Context(), chat.Update{Chat: "c1", Archived: new(true)})
	is.NoErr(err)
	seq, err := handlers.Transaction(t.Context(), h.Log, func(ctx context.Context) error {
		_, err := h.Chats.Update(ctx, chat.Update{Chat: "c1", Archived: new(true)})
		return err
	})
	is.NoErr(err)
	is.Equal(seq, first)
	seq, err = handlers.Transaction(t.Context(), h.Log, func(context.Context) error { return nil })
	is.NoErr(err)
	is.Equal(seq, uint64(0))
}

func TestRefusedCommandRefusesTheTransaction(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.New(eventstest.Log(t))
	save := func(ctx context.Context, id, name string) error {
		_, _, err := h.Records.Save(ctx, record.Save{Collection: "sops", Record: id, New: true,
			Set: handlerstest.Fields(`{"name":"` + name + `"}`)})
		return err
	}
	_, err := handlers.Transaction(t.Context(), h.Log, func(ctx context.Context) error {
		is.NoErr(save(ctx, "s1", "n"))
		return save(ctx, "s2", "n") // as the one before it, which is nowhere yet
	})
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	_, err = handlers.Transaction(t.Context(), h.Log, func(ctx context.Context) (err error) {
		for i := 0; err == nil; i++ {
			err = save(ctx, fmt.Sprint("s", i), fmt.Sprint("n", i))
		}
		return err
	})
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
	is.Equal(err.Error(), "This makes more than 200 changes at once. Make fewer.")
	is.Equal(len(handlerstest.Records(t, h.Log, "sops")), 0)
	is.NoErr(save(t.Context(), "s2", "n"))
	seq, err := handlers.Transaction(t.Context(), h.Log, func(ctx context.Context) (err error) {
		for i := 0; i < handlers.MaxTransaction && err == nil; i++ {
			err = save(ctx, fmt.Sprint("t", i), fmt.Sprint("n", i))
		}
		return err
	})
	is.NoErr(err)
	is.Equal(seq, uint64(201))
}

// Another system's handlers are first with one of the commands: everything is decided again, on what is true now.
func TestTransactionIsDecidedAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	elsewhere, tries := permissiontest.New(h.Log), 0
	save := record.Save{Collection: "sops", New: true, Upsert: true, Set: handlerstest.Fields(`{"name":"n","version":"1"}`)}
	var id string
	_, err := handlers.Transaction(t.Context(), h.Log, func(ctx context.Context) (err error) {
		tries++
		if _, err := h.Chats.Update(ctx, chat.Update{Chat: "c1", Archived: new(true)}); err != nil {
			return err
		}
		if id, _, err = h.Records.Save(ctx, save); err != nil {
			return err
		}
		if tries == 1 {
			_, _, err = elsewhere.Records.Save(t.Context(), record.Save{Collection: "sops", Record: "s1", New: true,
				Set: handlerstest.Fields(`{"name":"n"}`)})
		}
		return err
	})
	is.NoErr(err)
	is.Equal(tries, 2)
	is.Equal(id, "s1")
	is.Equal(handlerstest.Records(t, h.Log, "sops"), []string{`s1 saved {"fields":{"name":"n"}}`,
		`s1 saved {"fields":{"name":"n","version":"1"}}`})
	_, data := handlerstest.History(t, h.Log, "c1")
	is.Equal(len(handlerstest.Of[events.ChatUpdated](data)), 1)
}

func TestTransactionsAtOnceAreEachWhole(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	done := 0
	for _, err := range handlerstest.AtOnce(8, func(i int) error {
		h := permissiontest.New(l, record.Type{Name: "a"}, record.Type{Name: "b"})
		_, err := handlers.Transaction(t.Context(), h.Log, func(ctx context.Context) error {
			_, _, err1 := h.Records.Save(ctx, record.Save{Collection: "a", Record: fmt.Sprint("r", i), New: true})
			_, _, err2 := h.Records.Save(ctx, record.Save{Collection: "b", Record: fmt.Sprint("r", i), New: true})
			return errors.Join(err1, err2)
		})
		return err
	}) {
		if err == nil {
			done++
		} else {
			is.Equal(handlerstest.Refusal(t, err), handlers.Conflict) // others were first too often
		}
	}
	is.True(done > 0)
	is.Equal(len(handlerstest.Records(t, l, "a")), done)
	is.Equal(len(handlerstest.Records(t, l, "b")), done)
}
