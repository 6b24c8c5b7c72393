package permission_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/policy"
)

func TestWhyTellsTheWholeStoryOfAnEditedCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	ada, err := events.NewUser("alice", events.ActorSystem, events.AccountCreated{Email: "ada@example.org", Name: "Ada",
		Role: "user"})
	is.NoErr(err)
	_, err = g.Log.Append(t.Context(), ada)
	is.NoErr(err)
	version := permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r1",
		`{"tool":"bash","pattern":"make*","action":"ask","active":true}`)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_0", "make"), handlerstest.Bash("per_1", "make"))
	g.AwaitIdle()
	// later
	permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r1",
		`{"tool":"bash","pattern":"make*","action":"allow","active":false}`)
	_, err = g.Permissions.Decide(t.Context(), permission.Decide{
		Command: handlers.Command{Actor: handlerstest.Alice}, Chat: "c1", Permission: "per_1", Decision: events.Authorized, Edited: "make -n",
		Client: events.Client{Device: "Phone/1", Address: "192.0.2.1"},
	})
	is.NoErr(err)
	handlerstest.Happened(t, g.Log, "c1",
		handlerstest.Fact{Data: events.ExecRefused{Exec: "x1", Session: "ses_1", Call: "call_per_1", Command: "make all",
			Cwd: g.Directory, Reason: "not the one"}},
		handlerstest.Fact{Data: events.ExecRefused{Exec: "x2", Session: "ses_1", Call: "call_per_2", Command: "id",
			Reason: "another's"}},
		handlerstest.Fact{Data: events.ExecRequested{Exec: "x3", Permission: "per_1", Session: "ses_1", Call: "call_per_1",
			Command: "make -n", Original: "make", Cwd: g.Directory}},
		handlerstest.Replied("per_1"),
		handlerstest.Fact{Data: events.ExecStarted{Exec: "x9"}},
		handlerstest.Fact{Data: events.ExecStarted{Exec: "x3"}},
		handlerstest.Fact{Data: events.ExecSignalled{Exec: "x3", Signal: "SIGTERM"}},
		handlerstest.Fact{Data: events.ExecFinished{Exec: "x9", ExitCode: 9}},
		handlerstest.Fact{Data: events.ExecFinished{Exec: "x3", ExitCode: 2}},
		handlerstest.Fact{Data: events.ExecChanged{Exec: "x3", More: 1}},
		handlerstest.Fact{Data: events.ExecChanged{Exec: "x9", More: 1}})

	w, err := permission.Explain(t.Context(), g.Gate, "c1", "per_1")
	is.NoErr(err)
	is.Equal([]string{w.Request.Type, w.Request.Command, w.Request.Cwd, w.Request.Agent, w.Request.Session, w.Request.Call},
		[]string{"bash", "make", g.Directory, "build", "ses_1", "call_per_1"})
	is.Equal(w.Request.Request, handlerstest.Request("make"))
	is.Equal(w.Verdict.Action, policy.AskPerson) // as the rules were then
	ref := events.RuleRef{Rule: "ask bash: make*", RuleID: "tool_permissions/r1", RuleVersion: version}
	is.Equal(w.Referred.RuleRef, ref)
	is.Equal(len(w.Rules), 1+len(g.Gate.Rules)) // every rule that was looked at
	is.Equal([]any{w.Rules[0].Rule, w.Rules[0].ID, w.Rules[0].Version, w.Rules[0].Matched},
		[]any{ref.Rule, ref.RuleID, ref.RuleVersion, true})
	d := w.Decision
	is.Equal([]string{d.Decision, d.Actor, d.By, d.Device, d.Address, d.Command, d.Edited, d.Cwd},
		[]string{"authorized", handlerstest.Alice, "Ada", "Phone/1", "192.0.2.1", "make", "make -n", g.Directory})
	is.Equal(len(w.Executions), 2)
	is.Equal([]string{w.Executions[0].Status, w.Executions[0].Reason}, []string{"refused", "not the one"})
	ran := w.Executions[1]
	is.Equal([]any{ran.ID, ran.Command, ran.Original, ran.Status, ran.ExitCode},
		[]any{"x3", "make -n", "make", "failed", 2})
	is.True(!ran.Started.IsZero() && !ran.Finished.IsZero())
	var types []string
	for i, e := range w.Events {
		types = append(types, e.Type)
		is.True(i == 0 || e.Seq > w.Events[i-1].Seq)
	}
	is.Equal(types, []string{"opencode.permission.asked", "permission.referred", "permission.decided", "exec.refused",
		"exec.requested",
		"opencode.permission.replied", "exec.started", "exec.signalled", "exec.finished", "exec.changed"})

	w, err = permission.Explain(t.Context(), g.Gate, "c1", "per_0") // waits
	is.NoErr(err)
	is.Equal(w.Decision, nil)
	is.Equal(len(w.Executions), 0)
	_, err = permission.Explain(t.Context(), g.Gate, "c1", "per_9")
	is.Equal(handlerstest.Refusal(t, err), handlers.NotFound)
	_, err = permission.Explain(t.Context(), g.Gate, "*", "per_1")
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
}

func TestWhySaysThatAnApprovalWasNotCarriedOut(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "make"))
	g.Decide("per_1", events.Authorized)
	w, err := permission.Explain(t.Context(), g.Gate, "c1", "per_1")
	is.NoErr(err)
	is.Equal(w.Expired, nil)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Fact{Data: events.PermissionExpired{Permission: "per_1",
		Reason: "gone"}})
	w, err = permission.Explain(t.Context(), g.Gate, "c1", "per_1")
	is.NoErr(err)
	is.Equal([]string{w.Decision.Decision, w.Decision.Actor, w.Expired.Reason},
		[]string{"authorized", handlerstest.Alice, "gone"})
}

func TestWhyOfWhatNoPersonDecided(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "git status"),
		handlerstest.Bash("per_2", "make"), handlerstest.Bash("per_3", "make"))
	_, _, err := g.Permissions.Submit(t.Context(), permissiontest.SubmitBash("i1", "git status"))
	is.NoErr(err)
	g.AwaitIdle()
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Fact{Data: events.PermissionExpired{Permission: "per_2",
		Reason: "gone"}}, handlerstest.Replied("per_3"))
	handlerstest.Await(t, g.Log, func(d events.PermissionDecided) bool { return d.Permission == "i1" })
	for id, want := range map[string][]string{
		"per_1": {"authorized", events.ActorPolicy, "bash: git status*", ""},
		"per_2": {"expired", "", "", "gone"},
		"per_3": {"once", "engine:local", "", "answered in OpenCode"},
		"i1":    {"authorized", events.ActorPolicy, "bash: git status*", ""},
	} {
		w, err := permission.Explain(t.Context(), g.Gate, "c1", id)
		is.NoErr(err)
		d := w.Decision
		is.Equal([]string{d.Decision, d.Actor, d.Rule, d.Reason}, want)
		is.Equal(d.By, "")
		is.Equal(w.Request.Command, map[bool]string{true: "make", false: "git status"}[id == "per_2" || id == "per_3"])
	}
}
