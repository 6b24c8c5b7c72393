package handlers

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
)

// everything gives one command of each kind, on what those before it made.
func everything(h *Handlers) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, seq, err := h.CreateChat(ctx, CreateChat{Command: Command{Actor: alice}, Chat: "c2", Title: "t"}); err != nil || seq != 0 {
			return fmt.Errorf("create: %d %w", seq, err)
		}
		_, _, err1 := h.SubmitMessage(ctx, SubmitMessage{Chat: "c2", Message: "m1", Parts: say("one")})
		_, _, err2 := h.SubmitMessage(ctx, SubmitMessage{Chat: "c2", Message: "m2", Parts: say("two")})
		_, err3 := h.UpdateChat(ctx, UpdateChat{Chat: "c2", Title: new("t")}) // is so already
		_, err4 := h.UpdateChat(ctx, UpdateChat{Chat: "c2", Archived: new(true)})
		_, err5 := h.DecidePermission(ctx, DecidePermission{Command: Command{Actor: alice}, Chat: "c1", Permission: "per_1", Decision: events.Denied})
		_, err6 := h.AnswerQuestion(ctx, AnswerQuestion{Chat: "c1", Question: "que_1", Index: 1, Answers: []string{"yes"}})
		_, status, seq, err7 := gateOn(h).Request(ctx, intends("i1", "git status"))
		_, _, err8 := h.SaveRecord(ctx, SaveRecord{Collection: "sops", Record: "s1", New: true, Unique: []string{"name"}, Set: with(`{"name":"n"}`)})
		_, _, err9 := h.SaveRecord(ctx, SaveRecord{Collection: "sops", Record: "s1", Set: with(`{"version":2}`)})
		_, _, err10 := h.ForkChat(ctx, ForkChat{Chat: "c2", Into: "c3"})
		_, err11 := h.DeleteChat(ctx, DeleteChat{Chat: "c2"})
		if status != "authorized" || seq != 0 {
			return fmt.Errorf("request: %s %d", status, seq)
		}
		return errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9, err10, err11)
	}
}

func TestTransactionIsAllOrNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	before, err := h.Log.Last(t.Context())
	is.NoErr(err)
	wrong := errors.New("wrong")
	_, err = h.Transaction(t.Context(), func(ctx context.Context) error {
		is.NoErr(everything(h)(ctx))
		return wrong
	})
	is.True(errors.Is(err, wrong))
	last, err := h.Log.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, before)

	// What did not happen is not remembered either: the same is decided the same way.
	seq, err := h.Transaction(t.Context(), everything(h))
	is.NoErr(err)
	last, err = h.Log.Last(t.Context())
	is.NoErr(err)
	is.Equal(seq, last)
	is.Equal(last, before+14)
	_, data := history(t, h.Log, "c2")
	is.Equal(data, []events.Data{
		events.ChatCreated{Title: "t", Engine: "local"}, events.MessageSubmitted{Message: "m1", Parts: say("one")},
		events.MessageSubmitted{Message: "m2", Parts: say("two")}, events.ChatUpdated{Archived: new(true)},
		events.ForkRequested{Chat: "c3"}, events.AbortRequested{}, events.Deleted{},
	})
	is.Equal(records(t, h.Log, "sops"), []string{`s1 saved {"fields":{"name":"n"}}`, `s1 saved {"fields":{"name":"n","version":2}}`})
}

func TestTransactionThatChangesNothingGivesThePlaceOfWhatIsTrue(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	first, err := h.UpdateChat(t.Context(), UpdateChat{Chat: "c1", Archived: new(true)})
	is.NoErr(err)
	seq, err := h.Transaction(t.Context(), func(ctx context.Context) error {
		_, err := h.UpdateChat(ctx, UpdateChat{Chat: "c1", Archived: new(true)})
		return err
	})
	is.NoErr(err)
	is.Equal(seq, first)
	seq, err = h.Transaction(t.Context(), func(context.Context) error { return nil })
	is.NoErr(err)
	is.Equal(seq, uint64(0))
}

func TestRefusedCommandRefusesTheTransaction(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := &Handlers{Log: eventstest.Log(t)}
	save := func(ctx context.Context, id, name string) error {
		_, _, err := h.SaveRecord(ctx, SaveRecord{Collection: "sops", Record: id, New: true, Unique: []string{"name"}, Set: with(`{"name":"` + name + `"}`)})
		return err
	}
	_, err := h.Transaction(t.Context(), func(ctx context.Context) error {
		is.NoErr(save(ctx, "s1", "n"))
		return save(ctx, "s2", "n") // as the one before it, which is nowhere yet
	})
	is.Equal(refusal(t, err), Conflict)
	_, err = h.Transaction(t.Context(), func(ctx context.Context) (err error) {
		for i := 0; err == nil; i++ {
			err = save(ctx, fmt.Sprint("s", i), fmt.Sprint("n", i))
		}
		return err
	})
	is.Equal(refusal(t, err), Invalid)
	is.Equal(err.Error(), "a transaction takes at most 50 commands")
	is.Equal(len(records(t, h.Log, "sops")), 0)
	is.NoErr(save(t.Context(), "s2", "n"))
	seq, err := h.Transaction(t.Context(), func(ctx context.Context) (err error) {
		for i := 0; i < MaxTransaction && err == nil; i++ {
			err = save(ctx, fmt.Sprint("t", i), fmt.Sprint("n", i))
		}
		return err
	})
	is.NoErr(err)
	is.Equal(seq, uint64(51))
}

// Another system's handlers are first with one of the commands: everything is decided again, on what is true now.
func TestTransactionIsDecidedAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	elsewhere, tries := &Handlers{Log: h.Log}, 0
	save := SaveRecord{Collection: "sops", New: true, Upsert: true, Unique: []string{"name"}, Set: with(`{"name":"n","v":1}`)}
	var id string
	_, err := h.Transaction(t.Context(), func(ctx context.Context) (err error) {
		tries++
		if _, err := h.UpdateChat(ctx, UpdateChat{Chat: "c1", Archived: new(true)}); err != nil {
			return err
		}
		if id, _, err = h.SaveRecord(ctx, save); err != nil {
			return err
		}
		if tries == 1 {
			_, _, err = elsewhere.SaveRecord(t.Context(), SaveRecord{Collection: "sops", Record: "s1", New: true, Set: with(`{"name":"n"}`)})
		}
		return err
	})
	is.NoErr(err)
	is.Equal(tries, 2)
	is.Equal(id, "s1")
	is.Equal(records(t, h.Log, "sops"), []string{`s1 saved {"fields":{"name":"n"}}`, `s1 saved {"fields":{"name":"n","v":1}}`})
	_, data := history(t, h.Log, "c1")
	is.Equal(len(of[events.ChatUpdated](data)), 1)
}

func TestTransactionsAtOnceAreEachWhole(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	done := 0
	for _, err := range atOnce(8, func(i int) error {
		h := &Handlers{Log: l}
		_, err := h.Transaction(t.Context(), func(ctx context.Context) error {
			_, _, err1 := h.SaveRecord(ctx, SaveRecord{Collection: "a", Record: fmt.Sprint("r", i), New: true})
			_, _, err2 := h.SaveRecord(ctx, SaveRecord{Collection: "b", Record: fmt.Sprint("r", i), New: true})
			return errors.Join(err1, err2)
		})
		return err
	}) {
		if err == nil {
			done++
		} else {
			is.Equal(refusal(t, err), Conflict) // others were first too often
		}
	}
	is.True(done > 0)
	is.Equal(len(records(t, l, "a")), done)
	is.Equal(len(records(t, l, "b")), done)
}

func TestMatches(t *testing.T) {
	for filter, c := range map[string]struct{ yes, no string }{
		"evt.chat.c1.*":            {"evt.chat.c1.created", "evt.chat.c1.message.submitted"},
		"evt.chat.c1.permission.*": {"evt.chat.c1.permission.decided", "evt.chat.c2.permission.decided"},
		"evt.config.sops.*.*":      {"evt.config.sops.s1.saved", "evt.config.tools.s1.saved"},
		"evt.chat.c1.created":      {"evt.chat.c1.created", "evt.chat.c1"},
	} {
		is := is.New(t)
		is.True(matches(filter, c.yes))
		is.True(!matches(filter, c.no))
	}
}
