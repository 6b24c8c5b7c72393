package permission_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/ops/expect"
)

func TestMain(m *testing.M) { expect.Run(m) }

func TestRuleDecidesAndIsNamedAndTheRestWaits(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	e := handlerstest.Bash("per_1", "git status --short").Event(t, "c1")
	_, err := g.Log.Append(t.Context(), e)
	is.NoErr(err)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_2", "git push"),
		handlerstest.Bash("per_3", "git status; make"))
	g.AwaitIdle()
	found, by := g.Decisions("per_1")
	is.Equal(found, []events.PermissionDecided{{
		Permission: "per_1", Decision: events.Authorized, RuleRef: events.RuleRef{Rule: "bash: git status*"}, Session: "ses_1", Call: "call_per_1", Type: "bash",
		Command: "git status --short", Cwd: g.Directory, Request: handlerstest.Request("git status --short"),
	}})
	is.Equal(by, []string{events.ActorPolicy})
	decided, _ := handlerstest.Await(t, g.Log, func(d events.PermissionDecided) bool { return d.Permission == "per_1" })
	is.Equal(decided.Cause, e.ID) // the request led to it
	for _, waits := range []string{"per_2", "per_3"} {
		found, _ = g.Decisions(waits)
		is.Equal(len(found), 0)
	}
	g.Decide("per_2", events.Denied) // and is a person's to decide
}

func TestRestartOfTheGateNeitherForgetsNorRepeats(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "git status"),
		handlerstest.Bash("per_2", "make"))
	g.AwaitIdle()
	g.Stop()
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_3", "git status"),
		handlerstest.Bash("per_4", "make"))
	g.Start()
	g.AwaitIdle()
	for id, n := range map[string]int{"per_1": 1, "per_2": 0, "per_3": 1, "per_4": 0} {
		found, _ := g.Decisions(id)
		is.Equal(len(found), n)
	}
}

func TestAGateWithoutProgressSkipsEvaluatedRequests(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	g.Stop()
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "git status"))
	var err error
	g.Evaluated, err = g.Log.Last(t.Context())
	is.NoErr(err)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_2", "git status"))
	g.Start()
	g.AwaitIdle()
	for id, n := range map[string]int{"per_1": 0, "per_2": 1} {
		found, _ := g.Decisions(id)
		is.Equal(len(found), n)
	}
}

func TestRequestThatOpenCodeForgotIsGrantedOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "make"),
		handlerstest.Fact{Data: events.PermissionInterrupted{Permission: "per_1"}})
	g.AwaitIdle()
	g.Decide("per_1", events.Authorized)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_2", "make "), handlerstest.Bash("per_3", "make"),
		handlerstest.Bash("per_4", "make"))
	g.AwaitIdle()
	found, _ := g.Decisions("per_2")
	is.Equal(len(found), 0) // not the same, byte for byte
	found, by := g.Decisions("per_3")
	is.Equal(found, []events.PermissionDecided{{
		Permission: "per_3", Decision: events.Authorized, ApprovalOf: "per_1", Reason: "approved as per_1, which OpenCode forgot when it restarted",
		Session: "ses_1", Call: "call_per_3", Type: "bash", Command: "make", Cwd: g.Directory, Request: handlerstest.Request("make"),
	}})
	is.Equal(by, []string{handlerstest.Alice})
	found, _ = g.Decisions("per_4")
	is.Equal(len(found), 0) // the approval is used up

	g.Stop()
	g.Start()
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_5", "make"))
	g.AwaitIdle()
	found, _ = g.Decisions("per_5")
	is.Equal(len(found), 0) // and stays so
}

// The durable consumer begins at the first event if its state is lost.
func TestForgottenRequestThatIsDeliveredAgainStaysWithThePerson(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	e := handlerstest.Bash("per_1", "make").Event(t, "c1")
	_, err := g.Log.Append(t.Context(), e)
	is.NoErr(err)
	g.AwaitIdle()
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Fact{Data: events.PermissionInterrupted{Permission: "per_1"}})
	permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r1",
		`{"tool":"bash","pattern":"make*","action":"allow","active":true}`)
	is.NoErr(g.Gate.React(t.Context(), e))
	found, _ := g.Decisions("per_1")
	is.Equal(len(found), 0) // an approval would begin a turn
}

func TestDenialOfAForgottenRequestGrantsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "make"),
		handlerstest.Fact{Data: events.PermissionInterrupted{Permission: "per_1"}})
	g.Decide("per_1", events.Denied)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_2", "make"))
	g.AwaitIdle()
	found, _ := g.Decisions("per_2")
	is.Equal(len(found), 0)
}

func TestForgottenRequestThatIsMadeAgainExpires(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	forgotten := func(id string) handlerstest.Fact {
		return handlerstest.Fact{Data: events.PermissionInterrupted{Permission: id}}
	}
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "make"),
		handlerstest.Bash("per_2", "make test"), handlerstest.Bash("per_3", "make"))
	g.AwaitIdle()
	handlerstest.Happened(t, g.Log, "c1", forgotten("per_1"), forgotten("per_2"), handlerstest.Bash("per_4", "make"))
	g.AwaitIdle()
	_, data := handlerstest.History(t, g.Log, "c1")
	// Not per_2, which is another command, and not per_3, which OpenCode still knows.
	is.Equal(handlerstest.Of[events.PermissionExpired](data),
		[]events.PermissionExpired{{Permission: "per_1", Reason: "asked again as per_4"}})
	found, _ := g.Decisions("per_4")
	is.Equal(len(found), 0)
	_, err := g.Permissions.Decide(t.Context(), permission.Decide{Chat: "c1", Permission: "per_1",
		Decision: events.Authorized})
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
}

func TestReadIsAllowedOnlyInsideTheWorkspace(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	outside := filepath.Join(filepath.Dir(g.Directory), "secret.txt")
	is.NoErr(os.WriteFile(outside, nil, 0o600))
	is.NoErr(os.Mkdir(filepath.Join(g.Directory, "sub"), 0o700))
	is.NoErr(os.WriteFile(filepath.Join(g.Directory, "sub", "a.txt"), nil, 0o600))
	for link, to := range map[string]string{"link": outside, "up": "..", "in": "sub/a.txt", "root": "/", "loop": "loop"} {
		is.NoErr(os.Symlink(to, filepath.Join(g.Directory, link)))
	}
	for pattern, allowed := range map[string]bool{
		"sub/a.txt": true, "sub": true, filepath.Join(g.Directory, "sub/a.txt"): true, "in": true, "sub/../sub/a.txt": true,
		"link": false, "up/secret.txt": false, "root/etc/passwd": false, "loop": false, "../secret.txt": false, outside: false,
		"/etc/passwd": false, "no such file": false, "sub/a.txt\x00": false,
	} {
		for _, typ := range []string{"read", "list"} {
			id := "per_" + events.NewID()
			handlerstest.Happened(t, g.Log, "c1", handlerstest.Permission(id, "ses_1", "call_"+id, typ, []string{pattern},
				map[string]string{}))
			g.AwaitIdle()
			found, _ := g.Decisions(id)
			allowed := allowed || typ == "read" && pattern == "no such file" // OpenCode's tool says that there is none
			if (len(found) == 1) != allowed {
				t.Errorf("%s %q: decided %v", typ, pattern, found)
			}
			if allowed {
				is.Equal(found[0].Rule, typ+": <workspace>")
			}
		}
	}
	// One file outside makes the whole request need a person, and an unknown session has no workspace.
	handlerstest.Happened(t, g.Log, "c1",
		handlerstest.Permission("per_1", "ses_1", "call", "read", []string{"in", "link"}, map[string]string{}),
		handlerstest.Permission("per_2", "ses_9", "call", "read", []string{"in"}, map[string]string{}))
	g.AwaitIdle()
	for _, id := range []string{"per_1", "per_2"} {
		found, _ := g.Decisions(id)
		is.Equal(len(found), 0)
	}
}

func TestUnreadableRequestDoesNotStopTheGate(t *testing.T) {
	t.Parallel()
	g := permissiontest.OpenGate(t)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.OpenCode(events.PermissionAsked, "not a request"),
		handlerstest.OpenCode(events.PermissionAsked, map[string]any{"id": 7}))
	g.AwaitIdle()
}

func TestRuleDeniesWithItsReason(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	version := permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r1",
		`{"tool":"bash","pattern":"git status*","action":"deny","active":true}`)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "git status"))
	g.AwaitIdle()
	found, by := g.Decisions("per_1")
	is.Equal(len(found), 1)
	is.Equal(found[0].Decision, events.Denied)
	is.True(found[0].Reason != "") // the model sees it, and goes on
	is.Equal(found[0].RuleRef, events.RuleRef{Rule: "deny bash: git status*", RuleID: "tool_permissions/r1",
		RuleVersion: version})
	is.Equal(by, []string{events.ActorPolicy})
	is.Equal(len(g.Referrals("per_1")), 0)
}

func TestRealPathFollowsLinksAsFarAsThereIsSomething(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	is.NoErr(err)
	is.NoErr(os.Mkdir(filepath.Join(dir, "there"), 0o700))
	is.NoErr(os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for link, to := range map[string]string{"link": "there", "dead": "nowhere", "loop": "loop", "up": "../nowhere",
		"process": "/proc/self/environ", "directory": "/proc/self/cwd", "descriptor": "/dev/fd/1"} {
		is.NoErr(os.Symlink(to, filepath.Join(dir, link)))
	}
	for path, want := range map[string]string{
		"there": "there", "link": "there", "link/new/er": "there/new/er", "new": "new", "link/../new": "new", ".": ".",
		"dead": "nowhere", "dead/x": "nowhere/x", "loop": "", "up": "../nowhere", "up/../x": "x", "file/x": "", "there/\x00": "",
		"process": "", "directory/x": "", "descriptor": "",
	} {
		real, ok := workspace.RealPath(dir + "/" + path)
		is.Equal(ok, want != "")
		if ok {
			is.Equal(real, filepath.Join(dir, want))
		}
	}
	_, ok := workspace.RealPath("there")
	is.True(!ok)
}
