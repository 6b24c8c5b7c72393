package projections_test

import (
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

func TestExecutionEndsAsItsResultSays(t *testing.T) {
	t.Parallel()
	for want, result := range map[string]events.ExecFinished{
		"completed":   {},
		"failed":      {ExitCode: 3},
		"cancelled":   {Signal: "SIGTERM", Reason: "cancelled"},
		"timeout":     {Signal: "SIGKILL", Reason: "timeout"},
		"lost":        {Reason: "lost", Error: "the worker died"},
		"output-size": {Signal: "SIGTERM", ExitCode: 143, Reason: "output-size"},
		"memory":      {Signal: "SIGKILL", ExitCode: 137, Reason: "memory", Worker: "w1", Isolation: "bwrap"},
	} {
		t.Run(want, func(t *testing.T) {
			is := is.New(t)
			m, s := still(t), &eventBuilder{t: t}
			feed(t, m, s.created(), s.request("per_1", ses, "make"),
				s.own(events.ExecRequested{Exec: "x1", Permission: "per_1", Session: ses, Call: "call_1", Command: "make",
					Cwd: "/workspace", Pool: "default"}))
			running, err := m.RunningExecutions(t.Context())
			is.NoErr(err)
			is.Equal(len(running), 1)
			is.Equal([]string{running[0].Status, running[0].Text, running[0].Permission, running[0].Started},
				[]string{"executing", "make", store.RecordID("per_1"), running[0].Created})
			result.Exec, result.DurationMS, result.Stdout = "x1", 12, events.Output{Bytes: 3, Text: "out"}
			feed(t, m, own(t, "sandbox", result))
			all, err := m.Executions(t.Context(), chatID)
			is.NoErr(err)
			x := all[0]
			is.Equal([]any{x.Status, x.ExitCode, x.Signal, x.Error, x.StdoutBytes, x.DurationMS},
				[]any{want, int64(result.ExitCode), result.Signal, result.Error, int64(3), int64(12)})
			is.Equal([]string{x.Worker, x.Isolation}, []string{result.Worker, result.Isolation})
			is.Equal(string(x.Outputs), `{"stdout":{"bytes":3,"text":"out"},"stderr":{"bytes":0}}`)
			is.True(x.Finished > x.Started)
			running, err = m.RunningExecutions(t.Context())
			is.NoErr(err)
			is.Equal(len(running), 0)
		})
	}
}

func TestRefusedCommandIsRecordedAndRunsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.created(), s.own(events.ExecRequested{Exec: "x1", Permission: "per_1", Command: "make"}),
		s.own(events.ExecRequested{Exec: "x2", Permission: "per_2", Command: "make"}),
		s.own(events.ExecRefused{Exec: "x3", Session: ses, Call: "call_2", Command: "make", Reason: "nobody allowed it"}))
	all, err := m.Executions(t.Context(), chatID)
	is.NoErr(err)
	is.Equal([]any{all[2].Status, all[2].Reason, all[2].ExitCode, all[2].Text},
		[]any{"refused", "nobody allowed it", int64(126), "make"})
	commands, err := store.List[projections.Command](t.Context(), m.Model, "commands", "SELECT * FROM commands", nil)
	is.NoErr(err)
	is.Equal(len(commands), 1) // the same command, kept once
	is.Equal([]any{commands[0].Command, commands[0].Uses, len(commands[0].ID)}, []any{"make", int64(2), 15})
}

func TestExecutionNobodyWaitsForSaysWhoRunsItWhileItRuns(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.created(), s.request("per_1", ses, "detach make"),
		s.own(events.ExecRequested{Exec: "x1", Permission: "per_1", Session: ses, Call: "call_1", Command: "make",
			Cwd: "/workspace", Pool: "default", Detached: true}),
		s.own(events.ExecStarted{Exec: "x1", Worker: "w1", Isolation: "bwrap"}))
	x, found, err := m.Execution(t.Context(), "x1")
	is.NoErr(err)
	is.True(found)
	is.Equal([]any{x.Status, x.Worker, x.Isolation, x.Detached, x.Terminal, x.Text},
		[]any{"executing", "w1", "bwrap", true, false, "make"})
	// as one whose process died is recorded
	feed(t, m, own(t, "sandbox", events.ExecFinished{Exec: "x1", Reason: "cancelled"}))
	x, _, err = m.Execution(t.Context(), "x1")
	is.NoErr(err)
	is.Equal([]string{x.Status, x.Worker, x.Isolation}, []string{"cancelled", "w1", "bwrap"})
}

func TestPersonsShellIsAnExecutionWithoutACommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.created(), s.own(events.ExecRequested{Exec: "x1", Cwd: "/workspace", Pool: "default", Terminal: true,
		Private: true}),
		s.own(events.ExecStarted{Exec: "x1", Worker: "w1", Isolation: "landlock"}))
	for _, ask := range []func() ([]projections.ShownExecution, error){
		func() ([]projections.ShownExecution, error) { return m.Executions(t.Context(), chatID) },
		func() ([]projections.ShownExecution, error) { return m.RunningExecutions(t.Context()) },
	} {
		all, err := ask()
		is.NoErr(err)
		is.Equal(len(all), 1)
		is.Equal([]any{all[0].Terminal, all[0].Private, all[0].Source, all[0].Text, all[0].Command, all[0].Permission},
			[]any{true, true, "person", "", "", ""})
	}
	commands, err := store.List[projections.Command](t.Context(), m.Model, "commands", "SELECT * FROM commands", nil)
	is.NoErr(err)
	is.Equal(len(commands), 0)
}

func TestChangedFilesAreKeptWithTheirExecution(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	kept := events.Artifact{Path: "dist/a.js", Size: 3, SHA256: "ab",
		Blob: &events.Blob{Name: "sha256-ab", Size: 3, SHA256: "ab"}}
	feed(t, m, s.created(), s.own(events.ExecRequested{Exec: "x1", Command: "make"}),
		own(t, "sandbox", events.ExecFinished{Exec: "x1"}),
		own(t, "sandbox", events.ExecChanged{Exec: "x1", Files: []events.Artifact{kept,
			{Path: "big", Size: 1 << 30, SHA256: "cd"}}, More: 5}))
	x, _, err := m.Execution(t.Context(), "x1")
	is.NoErr(err)
	is.Equal(x.Changed, int64(7))
	a, found, err := m.ArtifactOf(t.Context(), "x1", "dist/a.js")
	is.NoErr(err)
	is.True(found)
	is.Equal([]any{a.Chat, a.Execution, a.Path, a.Size, a.SHA256, a.Blob},
		[]any{chatID, "x1", "dist/a.js", int64(3), "ab", "sha256-ab"})
	a, _, err = m.ArtifactOf(t.Context(), "x1", "big")
	is.NoErr(err)
	is.Equal(a.Blob, "")
	_, found, err = m.ArtifactOf(t.Context(), "x1", "other")
	is.NoErr(err)
	is.True(!found)
}

func TestSubagentEndsAsItsTurnDoes(t *testing.T) {
	t.Parallel()
	s := &eventBuilder{t: t}
	for want, steps := range map[string][]events.Event{
		"running":   {s.status(child, "busy"), s.assistant(child, "msg_c", "msg_p", ended)}, // between two steps
		"completed": {s.status(child, "busy"), s.assistant(child, "msg_c", "msg_p", ended), s.status(child, "idle")},
		"aborted":   {s.status(child, "busy"), s.assistant(child, "msg_c", "msg_p", ""), s.failed(child, "MessageAbortedError"), s.status(child, "idle"), s.assistant(child, "msg_c", "msg_p", aborted)},
		"failed":    {s.status(child, "busy"), s.assistant(child, "msg_c", "msg_p", ""), s.own(events.TurnLost{Session: child})},
	} {
		t.Run(want, func(t *testing.T) {
			is := is.New(t)
			m := still(t)
			feed(t, m, s.created(), s.child())
			feed(t, m, steps...)
			all, err := m.Subagents(t.Context(), chatID)
			is.NoErr(err)
			a := all[0]
			is.Equal([]string{a.Status, a.Session, a.Delegating, a.Agent, a.Title},
				[]string{want, child, ses, "general", "look"})
			is.Equal(a.Finished == "", want == "running")
			feed(t, m, s.opencode(true, "session.updated",
				fmt.Sprintf(`{"sessionID":%q,"info":{"parentID":%q,"title":"looked"}}`, child, ses)))
			again, err := m.Subagents(t.Context(), chatID)
			is.NoErr(err)
			is.Equal([]string{again[0].Title, again[0].Finished}, []string{"looked", a.Finished})
		})
	}
}
