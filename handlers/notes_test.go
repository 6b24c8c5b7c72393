package handlers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/note"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
)

// openNotes returns notes over a log of its own, with the agent Reviewer.
func openNotes(t *testing.T) note.Notes {
	l := eventstest.Log(t, "hunter2-secret")
	h := note.Notes{Log: l, Records: recordtype.Open(l, nil)}
	_, _, err := h.Records.Save(t.Context(), record.Save{Collection: "ai_agents", Record: "agent1", New: true,
		Set: handlerstest.Fields(`{"name":"Reviewer"}`)})
	is.New(t).NoErr(err)
	return h
}

var planNote = note.Of{Agent: "Reviewer", Name: "plan"}

func saveNote(t *testing.T, h note.Notes, of note.Of, content string) error {
	_, _, err := h.Save(t.Context(), note.Save{Command: handlers.Command{Actor: events.UserActor("ann")}, Of: of,
		Content: content})
	return err
}

func TestVersionsOfANoteStayAndAreRestored(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openNotes(t)
	is.NoErr(saveNote(t, h, planNote, "one"))
	is.Equal(handlers.CodeOf(saveNote(t, h, planNote, "two hunter2-secret")), handlers.Invalid)
	is.NoErr(saveNote(t, h, planNote, "two"))
	is.NoErr(saveNote(t, h, planNote, "two")) // the same text is no version
	all, err := h.Versions(t.Context(), note.Of{Agent: "agent1", Name: "plan"})
	is.NoErr(err)
	is.Equal(len(all), 2)
	is.Equal([]any{all[1].Actor, all[1].Size}, []any{events.UserActor("ann"), 3})
	now, err := h.Read(t.Context(), note.Read{Of: planNote})
	is.NoErr(err)
	expect.Lacks(t, now.Content, "hunter2-secret")

	_, err = h.Delete(t.Context(), note.Delete{Of: planNote})
	is.NoErr(err)
	_, err = h.Read(t.Context(), note.Read{Of: planNote})
	is.Equal(handlers.CodeOf(err), handlers.NotFound)
	_, _, err = h.Restore(t.Context(), note.Restore{Of: planNote, Version: all[1].Version})
	is.NoErr(err)
	now, err = h.Read(t.Context(), note.Read{Of: planNote})
	is.NoErr(err)
	is.Equal(now.Content, "one")
	changes, err := h.Changes(t.Context(), planNote, 10)
	is.NoErr(err)
	is.Equal(len(changes), 4)
	is.True(changes[1].Deleted)
	expect.Contains(t, changes[0].Difference, "+one")
	list, err := h.List(t.Context(), note.List{Agent: "Reviewer"})
	is.NoErr(err)
	is.Equal(list, []note.Listed{{Name: "plan", Size: 3}})
}

func TestANoteThatCannotBeAFileIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openNotes(t)
	is.NoErr(saveNote(t, h, planNote, strings.Repeat("x", note.MaxContent)))
	for name, c := range map[string]struct {
		of      note.Of
		content string
		says    string
	}{
		"path":       {note.Of{Agent: "Reviewer", Name: "../plan"}, "", "is not a name of a note"},
		"hidden":     {note.Of{Agent: "Reviewer", Name: ".new"}, "", "is not a name of a note"},
		"extension":  {note.Of{Agent: "Reviewer", Name: "plan.md"}, "", "is not a name of a note"},
		"long name":  {note.Of{Agent: "Reviewer", Name: strings.Repeat("n", 65)}, "", "is not a name of a note"},
		"too large":  {planNote, strings.Repeat("x", note.MaxContent+1), "at most 64 KiB are stored"},
		"no agent":   {note.Of{Agent: "Unknown", Name: "plan"}, "", `There is no agent "Unknown". The agents are: Reviewer.`},
		"no content": {note.Of{Agent: "", Name: "plan"}, "", "There is no agent"},
	} {
		err := saveNote(t, h, c.of, c.content)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
	for i := range note.MaxNotes - 1 {
		is.NoErr(saveNote(t, h, note.Of{Agent: "Reviewer", Name: fmt.Sprint("n", i)}, "x"))
	}
	is.Equal(handlers.CodeOf(saveNote(t, h, note.Of{Agent: "Reviewer", Name: "more"}, "x")), handlers.Invalid)
	is.NoErr(saveNote(t, h, planNote, "shorter")) // one that exists is no further note

	_, _, err := h.Records.Save(t.Context(), record.Save{Collection: note.Collection,
		Record: note.Note{Agent: "agent1", Name: "plan"}.ID(), Set: handlerstest.Fields(`{"name":"other"}`)})
	expect.Contains(t, fmt.Sprint(err), "cannot change")
}
