package handlers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
)

// openNotes returns notes over a log of its own, with the agent Reviewer.
func openNotes(t *testing.T) agent.Notes {
	l := eventstest.Log(t, "hunter2-secret")
	h := agent.Notes{Log: l, Records: recordtype.Open(l, recordtype.Machine{})}
	_, _, err := h.Records.Save(t.Context(), record.Save{Collection: "ai_agents", Record: "agent1", New: true,
		Set: handlerstest.Fields(`{"name":"Reviewer"}`)})
	is.New(t).NoErr(err)
	return h
}

var planNote = agent.NoteName{Agent: "Reviewer", Name: "plan"}

func saveNote(t *testing.T, h agent.Notes, of agent.NoteName, content string) error {
	_, _, err := h.Save(t.Context(), agent.SaveNote{Command: handlers.Command{Actor: events.UserActor("ann")},
		NoteName: of, Content: content})
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
	all, err := h.Versions(t.Context(), agent.NoteName{Agent: "agent1", Name: "plan"})
	is.NoErr(err)
	is.Equal(len(all), 2)
	is.Equal([]any{all[1].Actor, all[1].Size}, []any{events.UserActor("ann"), 3})
	now, err := h.Read(t.Context(), agent.ReadNote{NoteName: planNote})
	is.NoErr(err)
	expect.Lacks(t, now.Content, "hunter2-secret")

	_, err = h.Delete(t.Context(), agent.DeleteNote{NoteName: planNote})
	is.NoErr(err)
	_, err = h.Read(t.Context(), agent.ReadNote{NoteName: planNote})
	is.Equal(handlers.CodeOf(err), handlers.NotFound)
	_, _, err = h.Restore(t.Context(), agent.RestoreNote{NoteName: planNote, Version: all[1].Version})
	is.NoErr(err)
	now, err = h.Read(t.Context(), agent.ReadNote{NoteName: planNote})
	is.NoErr(err)
	is.Equal(now.Content, "one")
	changes, err := h.Changes(t.Context(), planNote, 10)
	is.NoErr(err)
	is.Equal(len(changes), 4)
	is.True(changes[1].Deleted)
	expect.Contains(t, changes[0].Difference, "+one")
	list, err := h.List(t.Context(), agent.ListNotes{Agent: "Reviewer"})
	is.NoErr(err)
	is.Equal(list, []agent.ListedNote{{Name: "plan", Size: 3}})
}

func TestNotesOfTheSameNameInTwoProjects(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openNotes(t)
	_, err := project.Ensure(t.Context(), h.Records, project.Project{ID: "app", Name: "app", Directory: "/app"})
	is.NoErr(err)
	inApp := planNote
	inApp.Project = "app"
	is.NoErr(saveNote(t, h, planNote, "one"))
	is.NoErr(saveNote(t, h, inApp, "two"))
	explicit := planNote
	explicit.Project = events.DefaultEngine
	for of, want := range map[agent.NoteName]string{planNote: "one", inApp: "two", explicit: "one"} {
		got, err := h.Read(t.Context(), agent.ReadNote{NoteName: of})
		is.NoErr(err)
		is.Equal(got.Content, want)
	}
	list, err := h.List(t.Context(), agent.ListNotes{Agent: "Reviewer", Project: "app"})
	is.NoErr(err)
	is.Equal(list, []agent.ListedNote{{Name: "plan", Size: 3}})
	inApp.Project = "other"
	expect.Contains(t, fmt.Sprint(saveNote(t, h, inApp, "three")), `There is no project "other".`)
}

func TestANoteThatCannotBeAFileIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openNotes(t)
	is.NoErr(saveNote(t, h, planNote, strings.Repeat("x", agent.MaxNoteContent)))
	for name, c := range map[string]struct {
		of      agent.NoteName
		content string
		says    string
	}{
		"path":       {agent.NoteName{Agent: "Reviewer", Name: "../plan"}, "", "is not a name of a note"},
		"hidden":     {agent.NoteName{Agent: "Reviewer", Name: ".new"}, "", "is not a name of a note"},
		"extension":  {agent.NoteName{Agent: "Reviewer", Name: "plan.md"}, "", "is not a name of a note"},
		"long name":  {agent.NoteName{Agent: "Reviewer", Name: strings.Repeat("n", 65)}, "", "is not a name of a note"},
		"too large":  {planNote, strings.Repeat("x", agent.MaxNoteContent+1), "at most 64 KiB are stored"},
		"no agent":   {agent.NoteName{Agent: "Unknown", Name: "plan"}, "", `There is no agent "Unknown". The agents are: Reviewer.`},
		"no content": {agent.NoteName{Agent: "", Name: "plan"}, "", "There is no agent"},
	} {
		err := saveNote(t, h, c.of, c.content)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
	for i := range agent.MaxNotes - 1 {
		is.NoErr(saveNote(t, h, agent.NoteName{Agent: "Reviewer", Name: fmt.Sprint("n", i)}, "x"))
	}
	is.Equal(handlers.CodeOf(saveNote(t, h, agent.NoteName{Agent: "Reviewer", Name: "more"}, "x")), handlers.Invalid)
	is.NoErr(saveNote(t, h, planNote, "shorter")) // one that exists is no further note

	_, _, err := h.Records.Save(t.Context(), record.Save{Collection: agent.NotesCollection,
		Record: agent.Note{Agent: "agent1", Name: "plan"}.ID(), Set: handlerstest.Fields(`{"name":"other"}`)})
	expect.Contains(t, fmt.Sprint(err), "cannot change")
}
