package exec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

func TestExpiredAndUsedDecisionsAreRefused(t *testing.T) {
	request, allowed := handlerstest.Bash("per_1", "ls"), handlerstest.Decided("per_1", "ls", events.Authorized)
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	abort := func(session string) handlerstest.Fact {
		return handlerstest.Fact{By: handlerstest.Alice, Data: events.AbortRequested{Session: session}}
	}
	lost := func(session string) handlerstest.Fact {
		return handlerstest.Fact{Data: events.TurnLost{Session: session}}
	}
	started := handlerstest.Fact{Data: events.ExecRequested{Exec: "x1", Permission: "per_1", Session: "ses_1",
		Call: "call_per_1"}}
	secondDecision := handlerstest.Fact{By: handlerstest.Alice, Data: events.PermissionDecided{
		Permission: "per_2", Decision: events.Authorized, Session: "ses_1", Call: "call_per_1", Type: "bash", Command: "ls", Request: handlerstest.Request("ls"),
	}}
	for name, c := range map[string]struct {
		given []handlerstest.Fact
		want  string // "" runs
	}{
		"as decided":                      {[]handlerstest.Fact{request, allowed}, ""},
		"before its time is over":         {[]handlerstest.Fact{request, handlerstest.Approved(events.PermissionDecided{Expires: now.Add(time.Millisecond)})}, ""},
		"when its time is over":           {[]handlerstest.Fact{request, handlerstest.Approved(events.PermissionDecided{Expires: now})}, "the approval expired at 2026-01-02T03:00:00Z"},
		"used":                            {[]handlerstest.Fact{request, allowed, started}, "was executed already, as x1"},
		"the call's id used again":        {[]handlerstest.Fact{request, allowed, started, secondDecision}, ""},
		"used, and asked again":           {[]handlerstest.Fact{request, secondDecision, started, allowed}, "was executed already, as x1"},
		"after an abort":                  {[]handlerstest.Fact{request, allowed, abort("")}, "aborted after the approval"},
		"after the session's abort":       {[]handlerstest.Fact{request, allowed, abort("ses_1")}, "aborted after the approval"},
		"after another session's abort":   {[]handlerstest.Fact{request, allowed, abort("ses_2")}, ""},
		"after an abort before":           {[]handlerstest.Fact{abort(""), request, allowed}, ""},
		"after the turn was lost":         {[]handlerstest.Fact{request, allowed, lost("ses_1")}, "was lost"},
		"after another turn was lost":     {[]handlerstest.Fact{request, allowed, lost("ses_2")}, ""},
		"after the turn before was lost":  {[]handlerstest.Fact{lost("ses_1"), request, allowed}, ""},
		"forgotten":                       {[]handlerstest.Fact{request, allowed, {Data: events.PermissionInterrupted{Permission: "per_1"}}}, "was lost"},
		"denied when it was asked again":  {[]handlerstest.Fact{request, allowed, {By: handlerstest.Alice, Data: handlerstest.Deny(secondDecision)}}, "denied by user:alice"},
		"allowed when it was asked again": {[]handlerstest.Fact{request, {By: handlerstest.Alice, Data: handlerstest.Deny(allowed)}, secondDecision}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := permission.NewState()
			handlerstest.Given(t, s, c.given...)
			_, err := authorized(s, wire.Request{Session: "ses_1", Call: "call_per_1", Command: "ls"}, now)
			is.Equal(err != nil, c.want != "")
			if err != nil {
				expect.Contains(t, err.Error(), c.want)
			}
		})
	}
}

func TestEditedCommandRunsInPlaceOfTheOriginal(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	r := s.approved("echo original; exit 1", s.workspace, permission.Decide{Edited: "echo edited\nexit 4"})
	result, stdout, stderr := s.shell(t.Context(), r)
	is.Equal(result.ExitCode, 4)
	is.Equal(stderr, "")
	is.Equal(stdout, "[PocketCoder] A person changed this command before it ran.\n"+
		"[PocketCoder] Asked for: echo original; exit 1\n[PocketCoder] Ran: echo edited\nexit 4\nedited\n")
	_, data := handlerstest.History(t, s.Log, "c1")
	decided, requested := handlerstest.Of[events.PermissionDecided](data)[0], handlerstest.Of[events.ExecRequested](data)
	is.Equal([]string{decided.Command, decided.Edited}, []string{r.Command, "echo edited\nexit 4"})
	is.Equal(len(requested), 1)
	is.Equal([]string{requested[0].Original, requested[0].Command, requested[0].Permission},
		[]string{r.Command, decided.Edited, decided.Permission})
	finished := s.finished()
	is.Equal(finished.Stdout.Text, "edited\n") // without the notice
	is.Equal(finished.Exec, requested[0].Exec)
	is.Equal(s.started.Load(), int64(1))

	edited := s.approved("echo two", s.workspace, permission.Decide{Edited: "echo three"})
	edited.Command = "echo three" // not the command that the model requested
	result, stdout, _ = s.shell(t.Context(), edited)
	is.Equal(result.Reason, wire.Refused)
	expect.Contains(t, result.Error, "not the one that was authorized")
	is.Equal(stdout, "")
	is.Equal(s.started.Load(), int64(1))
}

func TestACommandRunsInTheAuthorizedDirectory(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	sub, link := filepath.Join(s.workspace, "sub"), filepath.Join(s.workspace, "link")
	is.NoErr(os.Mkdir(sub, 0o700))
	is.NoErr(os.Symlink("sub", link))

	there := s.approved("pwd", sub, permission.Decide{})
	elsewhere := there
	elsewhere.Cwd = s.workspace
	result, _, _ := s.shell(t.Context(), elsewhere)
	is.Equal(result.Error, "the command was authorized to run in "+sub+", not in "+s.workspace)
	there.Cwd = link // the same directory
	result, stdout, _ := s.shell(t.Context(), there)
	is.Equal(result.ExitCode, 0)
	is.Equal(stdout, sub+"\n")

	moved := s.approved("pwd", sub, permission.Decide{})
	moved.Cwd = link
	is.NoErr(os.Remove(link))
	is.NoErr(os.Symlink(".", link)) // changed after the approval
	result, _, _ = s.shell(t.Context(), moved)
	expect.Contains(t, result.Error, "was authorized to run in "+sub)

	r := s.request("pwd") // decided before its directory was known: valid for the session's directory
	id := r.Call[len("call_"):]
	handlerstest.Happened(t, s.Log, "c1", handlerstest.Bash(id, "pwd"))
	_, err := s.Permissions.Decide(t.Context(), permission.Decide{Command: handlers.Command{Actor: handlerstest.Alice},
		Chat: "c1", Permission: id, Decision: events.Authorized})
	is.NoErr(err)
	r.Cwd = sub
	result, _, _ = s.shell(t.Context(), r)
	is.Equal(result.Reason, wire.Refused)
	r.Cwd = s.workspace
	result, _, _ = s.shell(t.Context(), r)
	is.Equal(result.ExitCode, 0)
	is.Equal(s.started.Load(), int64(2))
	_, data := handlerstest.History(t, s.Log, "c1")
	is.Equal(len(handlerstest.Of[events.ExecRefused](data)), 3) // each is recorded, with its reason
}

func TestApprovalThatExpiredOrWasAbortedRunsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	short := s.approved("echo short", s.workspace, permission.Decide{For: "1ms"})
	expect.Eventually(t, "it becomes true", func() bool {
		why, err := s.Permissions.CheckApproval(t.Context(), "c1", short.Call[len("call_"):])
		is.NoErr(err)
		return strings.Contains(why, "expired")
	})
	result, _, _ := s.shell(t.Context(), short)
	expect.Contains(t, result.Error, "the approval expired at")

	hour := s.approved("echo hour", s.workspace, permission.Decide{For: "1h"})
	_, err := s.Chats.AbortTurn(t.Context(), chat.AbortTurn{Chat: "c1"})
	is.NoErr(err)
	why, err := s.Permissions.CheckApproval(t.Context(), "c1", hour.Call[len("call_"):])
	is.NoErr(err)
	is.Equal(why, "the turn was aborted after the approval") // the outbox rejects it in OpenCode
	_, err = s.Permissions.CheckApproval(t.Context(), "c1", "per_elsewhere")
	is.True(err != nil) // a replica that lags lacks the decision, which is not the same as no approval
	result, _, _ = s.shell(t.Context(), hour)
	expect.Contains(t, result.Error, "the turn was aborted")
	is.Equal(s.started.Load(), int64(0))

	next := s.approved("echo next", s.workspace, permission.Decide{For: "1h"})
	result, _, _ = s.shell(t.Context(), next)
	is.Equal(result.ExitCode, 0)
}

func TestAGrantKeepsTheEditAndTheExpiry(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "make"))
	g.AwaitIdle()
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Fact{Data: events.PermissionInterrupted{Permission: "per_1"}})
	_, err := g.Permissions.Decide(t.Context(), permission.Decide{
		Command: handlers.Command{Actor: handlerstest.Alice}, Chat: "c1", Permission: "per_1", Decision: events.Authorized, Edited: "make -n", For: "1h",
	})
	is.NoErr(err)
	g.Mu.Lock()
	g.Cwds["call_per_2"] = t.TempDir()
	g.Mu.Unlock()
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_2", "make"), handlerstest.Bash("per_3", "make"))
	g.AwaitIdle()
	first, _ := g.Decisions("per_1")
	found, _ := g.Decisions("per_2")
	is.Equal(len(found), 0) // its directory differs
	found, by := g.Decisions("per_3")
	is.Equal(len(found), 1)
	is.Equal(by, []string{handlerstest.Alice})
	is.Equal([]string{found[0].ApprovalOf, found[0].Edited, found[0].Cwd}, []string{"per_1", "make -n", g.Directory})
	is.Equal(found[0].Expires, first[0].Expires)
	is.True(!found[0].Expires.IsZero())
}

func TestACommandWithASecretIsRefusedForThatReason(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	s.Log.Conceal(secret.System, "test", handlerstest.Canary)
	result, stdout, _ := s.shell(t.Context(), s.authorized("echo "+handlerstest.Canary))
	is.Equal([]any{result.ExitCode, stdout}, []any{wire.ExitRefused, ""})
	is.True(strings.HasPrefix(result.Error, "The command contains a secret of PocketCoder's"))
	expect.Lacks(t, result.Error, handlerstest.Canary)
	other := s.authorized("echo a")
	other.Command = "echo b"
	result, _, _ = s.shell(t.Context(), other)
	is.Equal(result.Error, "the command is not the one that was authorized")
}

func TestOnlyTheExactCommandIsAuthorized(t *testing.T) {
	request := []handlerstest.Fact{handlerstest.Bash("per_1", "ls -l"), handlerstest.Bash("per_2", "rm x"),
		handlerstest.Bash("per_3", "id")}
	decisions := []handlerstest.Fact{handlerstest.Decided("per_1", "ls -l", events.Authorized),
		handlerstest.Decided("per_2", "rm x", events.Denied)}
	edit := handlerstest.Fact{By: handlerstest.Alice, Data: events.PermissionDecided{Permission: "per_4",
		Decision: events.Authorized, Session: "ses_1", Call: "call_4", Type: "edit", Command: "ls -l"}}
	for name, c := range map[string]struct {
		session, call, command string
		then                   handlers.Code
		want                   string
	}{
		"as decided":        {"ses_1", "call_per_1", "ls -l", "", ""},
		"a byte more":       {"ses_1", "call_per_1", "ls -l ", handlers.Conflict, "not the one that was authorized"},
		"a byte less":       {"ses_1", "call_per_1", "ls -", handlers.Conflict, "not the one"},
		"another case":      {"ses_1", "call_per_1", "LS -l", handlers.Conflict, "not the one"},
		"another call":      {"ses_1", "call_per_9", "ls -l", handlers.NotFound, "no permission was decided for call call_per_9"},
		"another session":   {"ses_2", "call_per_1", "ls -l", handlers.NotFound, "of session ses_2"},
		"no call":           {"ses_1", "", "ls -l", handlers.NotFound, ""},
		"denied":            {"ses_1", "call_per_2", "rm x", handlers.Conflict, "denied by user:alice"},
		"undecided":         {"ses_1", "call_per_3", "id", handlers.NotFound, ""},
		"of another tool":   {"ses_1", "call_4", "ls -l", handlers.NotFound, ""},
		"nothing as nobody": {"", "", "", handlers.NotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := permission.NewState()
			handlerstest.Given(t, s, append(append(request, decisions...), edit)...)
			outcome, err := authorized(s, wire.Request{Session: c.session, Call: c.call, Command: c.command}, time.Now())
			is.Equal(handlerstest.Refusal(t, err), c.then)
			if err != nil {
				expect.Contains(t, err.Error(), c.want)
				return
			}
			is.Equal(outcome.Decided.Permission, "per_1")
		})
	}
}

// A request over the API can name any session, call and command. Its approval allows no command.
func TestAnApprovedAPIRequestRunsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	_, _, err := s.Chats.Create(t.Context(), chat.Create{Chat: "c1"})
	is.NoErr(err)
	r := s.request("echo forged")
	c := permissiontest.SubmitBash("i1", r.Command)
	c.Session, c.Call = r.Session, r.Call
	_, _, err = s.Permissions.Submit(t.Context(), c)
	is.NoErr(err)
	_, err = s.Permissions.Decide(t.Context(), permission.Decide{Command: handlers.Command{Actor: handlerstest.Alice},
		Chat: "c1", Permission: "i1", Decision: events.Authorized})
	is.NoErr(err)
	result, stdout, _ := s.shell(t.Context(), r)
	is.Equal(result.Reason, wire.Refused)
	is.Equal(stdout, "")
	is.Equal(s.started.Load(), int64(0))
	_, data := handlerstest.History(t, s.Log, "c1")
	d := handlerstest.Of[events.PermissionDecided](data)[0]
	is.Equal(d.Session+d.Call, "") // the decision names no call
}

func TestADecisionOnAnAPIRequestIsIgnored(t *testing.T) {
	is := is.New(t)
	intent := handlerstest.Fact{By: handlerstest.Alice, Data: handlerstest.Requested("i1", "ls")}
	s := permission.NewState()
	// a decision that names a call of OpenCode
	handlerstest.Given(t, s, intent, handlerstest.Fact{By: handlerstest.Alice, Data: events.PermissionDecided{
		Permission: "i1", Decision: events.Authorized, Session: "ses_1", Call: "call_per_1", Type: "bash", Command: "ls", Request: handlerstest.Request("ls"),
	}})
	_, err := authorized(s, wire.Request{Session: "ses_1", Call: "call_per_1", Command: "ls"}, time.Now())
	is.Equal(handlerstest.Refusal(t, err), handlers.NotFound)

	s = permission.NewState()
	handlerstest.Given(t, s, handlerstest.Bash("per_1", "ls"), handlerstest.Decided("per_1", "ls", events.Authorized),
		handlerstest.Fact{Data: events.Deleted{}})
	_, err = authorized(s, wire.Request{Session: "ses_1", Call: "call_per_1", Command: "ls"}, time.Now())
	is.Equal(handlerstest.Refusal(t, err), handlers.NotFound)
	is.Equal(err.Error(), "the chat was deleted")
}

func TestACommandIsRefusedIfAFileThatItNamesChangedAfterTheApproval(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	for name, c := range map[string]struct{ by, change, want string }{
		"nothing":                {handlerstest.Alice, "", ""},
		"the script":             {handlerstest.Alice, "run.sh", "run.sh changed after the command was approved, so the command was not run. Ask again."},
		"a file that is not run": {handlerstest.Alice, "other", ""},
		"a rule allowed it":      {events.ActorPolicy, "run.sh", ""},
	} {
		is.NoErr(os.WriteFile(filepath.Join(s.workspace, "run.sh"), []byte("echo old\n"), 0o600))
		r := s.request("sh run.sh")
		id := r.Call[len("call_"):]
		files := workspace.CommandFingerprints(r.Command, s.workspace, s.workspace)
		if c.by != handlerstest.Alice {
			files = nil
		}
		handlerstest.Happened(t, s.Log, "c1", handlerstest.Bash(id, r.Command), handlerstest.Fact{By: c.by,
			Data: events.PermissionDecided{Permission: id, Decision: events.Authorized, Session: "ses_1", Call: r.Call, Type: "bash",
				Command: r.Command, Cwd: s.workspace, Files: files}})
		if c.change != "" {
			is.NoErr(os.WriteFile(filepath.Join(s.workspace, c.change), []byte("echo new\n"), 0o600))
		}
		result, out, _ := s.shell(t.Context(), r)
		is.Equal([]string{name, result.Error}, []string{name, c.want})
		is.Equal(out != "", c.want == "")
	}
}

func TestTheFilesOfACommandAreThoseOfItsLastDecision(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	is.NoErr(os.WriteFile(filepath.Join(s.workspace, "run.sh"), []byte("echo old\n"), 0o600))
	r := s.request("sh run.sh")
	decided := func(id string) {
		handlerstest.Happened(t, s.Log, "c1", handlerstest.Permission(id, "ses_1", r.Call, "bash", []string{r.Command},
			map[string]string{"command": r.Command}), handlerstest.Fact{By: handlerstest.Alice, Data: events.PermissionDecided{Permission: id, Decision: events.Authorized, Session: "ses_1", Call: r.Call,
			Type: "bash", Command: r.Command, Cwd: s.workspace,
			Files: workspace.CommandFingerprints(r.Command, s.workspace, s.workspace)}})
	}
	outcome := func() (last permission.Outcome) {
		is.NoErr(s.Permissions.Chat(t.Context(), "c1").Read(t.Context(), s.Log, func(state *permission.State) error {
			last = state.CommandRequest(r.Session, r.Call).Outcome
			return nil
		}))
		return last
	}
	compared := func() comparedFiles {
		files, err := s.exec.compareFiles(t.Context(), s.Permissions.Chat(t.Context(), "c1"), s.workspace, r)
		is.NoErr(err)
		return files
	}
	id := r.Call[len("call_"):]
	decided(id)
	files := compared()
	is.NoErr(files.check(outcome()))
	is.NoErr(os.WriteFile(filepath.Join(s.workspace, "run.sh"), []byte("echo new\n"), 0o600))
	is.NoErr(files.check(outcome())) // the check reads no files while the chat is locked
	is.Equal(handlerstest.Refusal(t, compared().check(outcome())), handlers.Conflict)
	decided(id + "b") // the model uses the id of the call again
	is.Equal(files.check(outcome()), errNotCompared)
	is.NoErr(compared().check(outcome()))
}
