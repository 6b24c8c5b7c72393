package handlers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/sandbox/wire"
)

func TestDecisionIsHonouredOnlyWhileItHolds(t *testing.T) {
	asked, allowed := askBash("per_1", "ls"), decided("per_1", "ls", events.Authorized)
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	abort := func(session string) fact { return fact{by: alice, data: events.AbortRequested{Session: session}} }
	lost := func(session string) fact { return fact{data: events.TurnLost{Session: session}} }
	started := fact{data: events.ExecRequested{Exec: "x1", Permission: "per_1", Session: "ses_1", Call: "call_per_1"}}
	again := fact{by: alice, data: events.PermissionDecided{
		Permission: "per_2", Decision: events.Authorized, Session: "ses_1", Call: "call_per_1", Type: "bash", Command: "ls", Request: request("ls"),
	}}
	for name, c := range map[string]struct {
		given []fact
		says  string // "" runs
	}{
		"as decided":                      {[]fact{asked, allowed}, ""},
		"before its time is over":         {[]fact{asked, approved(events.PermissionDecided{Expires: now.Add(time.Millisecond)})}, ""},
		"when its time is over":           {[]fact{asked, approved(events.PermissionDecided{Expires: now})}, "the approval expired at 2026-01-02T03:00:00Z"},
		"used":                            {[]fact{asked, allowed, started}, "was executed already, as x1"},
		"the call's id used again":        {[]fact{asked, allowed, started, again}, ""},
		"used, and asked again":           {[]fact{asked, again, started, allowed}, "was executed already, as x1"},
		"after an abort":                  {[]fact{asked, allowed, abort("")}, "aborted after the approval"},
		"after the session's abort":       {[]fact{asked, allowed, abort("ses_1")}, "aborted after the approval"},
		"after another session's abort":   {[]fact{asked, allowed, abort("ses_2")}, ""},
		"after an abort before":           {[]fact{abort(""), asked, allowed}, ""},
		"after the turn was lost":         {[]fact{asked, allowed, lost("ses_1")}, "was lost"},
		"after another turn was lost":     {[]fact{asked, allowed, lost("ses_2")}, ""},
		"after the turn before was lost":  {[]fact{lost("ses_1"), asked, allowed}, ""},
		"forgotten":                       {[]fact{asked, allowed, {data: events.PermissionInterrupted{Permission: "per_1"}}}, "was lost"},
		"denied when it was asked again":  {[]fact{asked, allowed, {by: alice, data: deny(again)}}, "denied by user:alice"},
		"allowed when it was asked again": {[]fact{asked, {by: alice, data: deny(allowed)}, again}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := newExecState()
			given(t, s, c.given...)
			_, err := s.authorized(wire.Request{Session: "ses_1", Call: "call_per_1", Command: "ls"}, now)
			is.Equal(err != nil, c.says != "")
			if err != nil {
				expect.Contains(t, err.Error(), c.says)
			}
		})
	}
}

// deny is the decision the other way round.
func deny(f fact) events.PermissionDecided {
	d := f.data.(events.PermissionDecided)
	d.Decision = events.Denied
	return d
}

func TestEditedCommandRunsInPlaceOfTheOriginal(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	r := s.approved("echo original; exit 1", s.workspace, DecidePermission{Edited: "echo edited\nexit 4"})
	result, stdout, stderr := s.shell(t.Context(), r)
	is.Equal(result.ExitCode, 4)
	is.Equal(stderr, "")
	is.Equal(stdout, "[PocketCoder] A person changed this command before it ran.\n"+
		"[PocketCoder] Asked for: echo original; exit 1\n[PocketCoder] Ran: echo edited\nexit 4\nedited\n")
	_, data := history(t, s.Log, "c1")
	decided, requested := of[events.PermissionDecided](data)[0], of[events.ExecRequested](data)
	is.Equal([]string{decided.Command, decided.Edited}, []string{r.Command, "echo edited\nexit 4"})
	is.Equal(len(requested), 1)
	is.Equal([]string{requested[0].Original, requested[0].Command, requested[0].Permission}, []string{r.Command, decided.Edited, decided.Permission})
	finished := s.finished()
	is.Equal(finished.Stdout.Text, "edited\n") // what the command wrote, and nothing else
	is.Equal(finished.Exec, requested[0].Exec)
	is.Equal(s.started.Load(), int64(1))

	edited := s.approved("echo two", s.workspace, DecidePermission{Edited: "echo three"})
	edited.Command = "echo three" // the model has not asked for it
	result, stdout, _ = s.shell(t.Context(), edited)
	is.Equal(result.Reason, wire.Refused)
	expect.Contains(t, result.Error, "not the one that was authorized")
	is.Equal(stdout, "")
	is.Equal(s.started.Load(), int64(1))
}

func TestCommandRunsWhereItWasAuthorizedTo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	sub, link := filepath.Join(s.workspace, "sub"), filepath.Join(s.workspace, "link")
	is.NoErr(os.Mkdir(sub, 0o700))
	is.NoErr(os.Symlink("sub", link))

	there := s.approved("pwd", sub, DecidePermission{})
	elsewhere := there
	elsewhere.Cwd = s.workspace
	result, _, _ := s.shell(t.Context(), elsewhere)
	is.Equal(result.Error, "the command was authorized to run in "+sub+", not in "+s.workspace)
	there.Cwd = link // the same place
	result, stdout, _ := s.shell(t.Context(), there)
	is.Equal(result.ExitCode, 0)
	is.Equal(stdout, sub+"\n")

	moved := s.approved("pwd", sub, DecidePermission{})
	moved.Cwd = link
	is.NoErr(os.Remove(link))
	is.NoErr(os.Symlink(".", link)) // after it was approved
	result, _, _ = s.shell(t.Context(), moved)
	expect.Contains(t, result.Error, "was authorized to run in "+sub)

	r := s.request("pwd") // decided before anybody knew where: for the session's directory
	id := r.Call[len("call_"):]
	happened(t, s.Log, "c1", askBash(id, "pwd"))
	_, err := s.DecidePermission(t.Context(), DecidePermission{Command: Command{Actor: alice}, Chat: "c1", Permission: id, Decision: events.Authorized})
	is.NoErr(err)
	r.Cwd = sub
	result, _, _ = s.shell(t.Context(), r)
	is.Equal(result.Reason, wire.Refused)
	r.Cwd = s.workspace
	result, _, _ = s.shell(t.Context(), r)
	is.Equal(result.ExitCode, 0)
	is.Equal(s.started.Load(), int64(2))
	_, data := history(t, s.Log, "c1")
	is.Equal(len(of[events.ExecRefused](data)), 3) // each is recorded, with its reason
}

func TestApprovalThatExpiredOrWasAbortedRunsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	short := s.approved("echo short", s.workspace, DecidePermission{For: "1ms"})
	expect.Eventually(t, "it becomes true", func() bool {
		why, err := s.Honoured(t.Context(), "c1", short.Call[len("call_"):])
		is.NoErr(err)
		return strings.Contains(why, "expired")
	})
	result, _, _ := s.shell(t.Context(), short)
	expect.Contains(t, result.Error, "the approval expired at")

	hour := s.approved("echo hour", s.workspace, DecidePermission{For: "1h"})
	_, err := s.AbortTurn(t.Context(), AbortTurn{Chat: "c1"})
	is.NoErr(err)
	why, err := s.Honoured(t.Context(), "c1", hour.Call[len("call_"):])
	is.NoErr(err)
	is.Equal(why, "the turn was aborted after the approval") // what OpenCode is told when it was not told before
	result, _, _ = s.shell(t.Context(), hour)
	expect.Contains(t, result.Error, "the turn was aborted")
	is.Equal(s.started.Load(), int64(0))

	next := s.approved("echo next", s.workspace, DecidePermission{For: "1h"})
	result, _, _ = s.shell(t.Context(), next)
	is.Equal(result.ExitCode, 0)
}

func TestGrantCarriesTheEditAndItsEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	happened(t, g.Log, "c1", askBash("per_1", "make"))
	g.looked()
	happened(t, g.Log, "c1", fact{data: events.PermissionInterrupted{Permission: "per_1"}})
	_, err := g.DecidePermission(t.Context(), DecidePermission{
		Command: Command{Actor: alice}, Chat: "c1", Permission: "per_1", Decision: events.Authorized, Edited: "make -n", For: "1h",
	})
	is.NoErr(err)
	g.mu.Lock()
	g.cwds["call_per_2"] = t.TempDir()
	g.mu.Unlock()
	happened(t, g.Log, "c1", askBash("per_2", "make"), askBash("per_3", "make"))
	g.looked()
	first, _ := g.decisions("per_1")
	found, _ := g.decisions("per_2")
	is.Equal(len(found), 0) // it would run elsewhere
	found, by := g.decisions("per_3")
	is.Equal(len(found), 1)
	is.Equal(by, []string{alice})
	is.Equal([]string{found[0].Grant, found[0].Edited, found[0].Cwd}, []string{"per_1", "make -n", g.directory})
	is.Equal(found[0].Expires, first[0].Expires)
	is.True(!found[0].Expires.IsZero())
}

func TestACommandWithASecretIsRefusedForThatReason(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	s.Log.Conceal("test", canary)
	result, stdout, _ := s.shell(t.Context(), s.authorized("echo "+canary))
	is.Equal([]any{result.ExitCode, stdout}, []any{wire.ExitRefused, ""})
	is.True(strings.HasPrefix(result.Error, "The command contains a secret of PocketCoder's"))
	expect.Lacks(t, result.Error, canary)
	other := s.authorized("echo a")
	other.Command = "echo b"
	result, _, _ = s.shell(t.Context(), other)
	is.Equal(result.Error, "the command is not the one that was authorized")
}
