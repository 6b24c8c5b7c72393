package handlers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers/policy"
)

// gate is a running gate with the default rules and one more, on chat c1 whose session ses_1 works in directory.
type gate struct {
	*Handlers
	directory string
	stop      func()
	t         testing.TB
	Gate      Gate // that runs

	mu      sync.Mutex
	cwds    map[string]string // of calls, when it is not the directory; empty is not known
	several map[string]bool   // calls that share their id with another
}

func openGate(t testing.TB) *gate {
	t.Helper()
	is := is.New(t)
	g := &gate{Handlers: &Handlers{Log: eventstest.Log(t)}, t: t, cwds: map[string]string{}, several: map[string]bool{}}
	temp, err := filepath.EvalSymlinks(t.TempDir())
	is.NoErr(err)
	g.directory = filepath.Join(temp, "workspace")
	is.NoErr(os.Mkdir(g.directory, 0o700))
	_, _, err = g.CreateChat(t.Context(), CreateChat{Chat: "c1"})
	is.NoErr(err)
	g.start()
	return g
}

// start starts the gate as a new process would: it knows what is in the log.
func (g *gate) start() {
	ctx, cancel := context.WithCancel(g.t.Context())
	done := make(chan error, 1)
	g.Gate = Gate{
		Handlers: &Handlers{Log: g.Log}, Log: quiet(), Workspace: g.directory,
		Rules:   append([]policy.Rule{{Permission: "bash", Pattern: "git status*"}}, policy.Defaults...),
		Session: func(id string) (Session, bool) { return Session{Chat: "c1", Directory: g.directory}, id == "ses_1" },
		Call:    g.call,
	}
	gate := g.Gate
	go func() { done <- gate.Run(ctx) }()
	g.stop = func() {
		cancel()
		is.New(g.t).True(errors.Is(<-done, context.Canceled))
		g.stop = func() {}
	}
	g.t.Cleanup(func() { g.stop() })
}

// call knows every call by the first request for it; the agent is build.
func (g *gate) call(ctx context.Context, _ string, tool events.Call, _ time.Duration) (Call, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	cwd, other := g.cwds[tool.CallID]
	if !other {
		cwd = g.directory
	}
	c := Call{Cwd: cwd, Agent: "build", Several: g.several[tool.CallID]}
	_, _ = g.Log.Fold(ctx, events.ChatOpenCodeSubject("c1", events.PermissionAsked), 0, func(e events.Event) error {
		a, _, err := askOf(e)
		if err != nil || a.Tool.CallID != tool.CallID {
			return nil
		}
		if c.Command = a.Command(); a.Permission == "read" && len(a.Patterns) > 0 {
			if c.Path = a.Patterns[0]; !filepath.IsAbs(c.Path) {
				c.Path = filepath.Join(g.directory, c.Path)
			}
		}
		return events.ErrStop
	})
	return c, cwd != ""
}

// looked waits until the gate has looked at everything asked so far: asks are looked at in order, and this one is allowed.
func (g *gate) looked() {
	g.t.Helper()
	id := "per_" + events.NewID()
	happened(g.t, g.Log, "c1", asks(id, "ses_1", "call_"+id, "todowrite", []string{"*"}, map[string]string{}))
	await(g.t, g.Log, func(d events.PermissionDecided) bool { return d.Permission == id })
}

// decisions are those on one ask, with their events.
func (g *gate) decisions(permission string) (found []events.PermissionDecided, by []string) {
	g.t.Helper()
	all, data := history(g.t, g.Log, "c1")
	for i, d := range data {
		if d, ok := d.(events.PermissionDecided); ok && d.Permission == permission {
			found, by = append(found, d), append(by, all[i].Actor)
		}
	}
	return found, by
}

func (g *gate) decide(permission string, d events.Decision) {
	g.t.Helper()
	_, err := g.DecidePermission(g.t.Context(), DecidePermission{Command: Command{Actor: alice}, Chat: "c1", Permission: permission, Decision: d})
	is.New(g.t).NoErr(err)
}

func TestRuleDecidesAndIsNamedAndTheRestWaits(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	e := askBash("per_1", "git status --short").event(t, "c1")
	_, err := g.Log.Append(t.Context(), e)
	is.NoErr(err)
	happened(t, g.Log, "c1", askBash("per_2", "git push"), askBash("per_3", "git status; make"))
	g.looked()
	found, by := g.decisions("per_1")
	is.Equal(found, []events.PermissionDecided{{
		Permission: "per_1", Decision: events.Authorized, RuleRef: events.RuleRef{Rule: "bash: git status*"}, Session: "ses_1", Call: "call_per_1", Type: "bash",
		Command: "git status --short", Cwd: g.directory, Request: request("git status --short"),
	}})
	is.Equal(by, []string{events.ActorPolicy})
	decided, _ := await(t, g.Log, func(d events.PermissionDecided) bool { return d.Permission == "per_1" })
	is.Equal(decided.Cause, e.ID) // the ask led to it
	for _, waits := range []string{"per_2", "per_3"} {
		found, _ = g.decisions(waits)
		is.Equal(len(found), 0)
	}
	g.decide("per_2", events.Denied) // and is a person's to decide
}

func TestRestartOfTheGateNeitherForgetsNorRepeats(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	happened(t, g.Log, "c1", askBash("per_1", "git status"), askBash("per_2", "make"))
	g.looked()
	g.stop()
	happened(t, g.Log, "c1", askBash("per_3", "git status"), askBash("per_4", "make"))
	g.start()
	g.looked()
	for id, n := range map[string]int{"per_1": 1, "per_2": 0, "per_3": 1, "per_4": 0} {
		found, _ := g.decisions(id)
		is.Equal(len(found), n)
	}
}

func TestAskThatOpenCodeForgotIsGrantedOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	happened(t, g.Log, "c1", askBash("per_1", "make"), fact{data: events.PermissionInterrupted{Permission: "per_1"}})
	g.looked()
	g.decide("per_1", events.Authorized)
	happened(t, g.Log, "c1", askBash("per_2", "make "), askBash("per_3", "make"), askBash("per_4", "make"))
	g.looked()
	found, _ := g.decisions("per_2")
	is.Equal(len(found), 0) // not the same, byte for byte
	found, by := g.decisions("per_3")
	is.Equal(found, []events.PermissionDecided{{
		Permission: "per_3", Decision: events.Authorized, Grant: "per_1", Reason: "approved as per_1, which OpenCode forgot when it restarted",
		Session: "ses_1", Call: "call_per_3", Type: "bash", Command: "make", Cwd: g.directory, Request: request("make"),
	}})
	is.Equal(by, []string{alice})
	found, _ = g.decisions("per_4")
	is.Equal(len(found), 0) // the approval is used up

	g.stop()
	g.start()
	happened(t, g.Log, "c1", askBash("per_5", "make"))
	g.looked()
	found, _ = g.decisions("per_5")
	is.Equal(len(found), 0) // and stays so
}

func TestDenialOfAForgottenAskGrantsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	happened(t, g.Log, "c1", askBash("per_1", "make"), fact{data: events.PermissionInterrupted{Permission: "per_1"}})
	g.decide("per_1", events.Denied)
	happened(t, g.Log, "c1", askBash("per_2", "make"))
	g.looked()
	found, _ := g.decisions("per_2")
	is.Equal(len(found), 0)
}

func TestForgottenAskThatIsAskedAgainExpires(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	forgotten := func(id string) fact { return fact{data: events.PermissionInterrupted{Permission: id}} }
	happened(t, g.Log, "c1", askBash("per_1", "make"), askBash("per_2", "make test"), askBash("per_3", "make"))
	g.looked()
	happened(t, g.Log, "c1", forgotten("per_1"), forgotten("per_2"), askBash("per_4", "make"))
	g.looked()
	_, data := history(t, g.Log, "c1")
	// Not per_2, which is another command, and not per_3, which OpenCode still knows.
	is.Equal(of[events.PermissionExpired](data), []events.PermissionExpired{{Permission: "per_1", Reason: "asked again as per_4"}})
	found, _ := g.decisions("per_4")
	is.Equal(len(found), 0)
	_, err := g.DecidePermission(t.Context(), DecidePermission{Chat: "c1", Permission: "per_1", Decision: events.Authorized})
	is.Equal(refusal(t, err), Conflict)
}

func TestReadIsAllowedOnlyInsideTheWorkspace(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	outside := filepath.Join(filepath.Dir(g.directory), "secret.txt")
	is.NoErr(os.WriteFile(outside, nil, 0o600))
	is.NoErr(os.Mkdir(filepath.Join(g.directory, "sub"), 0o700))
	is.NoErr(os.WriteFile(filepath.Join(g.directory, "sub", "a.txt"), nil, 0o600))
	for link, to := range map[string]string{"link": outside, "up": "..", "in": "sub/a.txt", "root": "/", "loop": "loop"} {
		is.NoErr(os.Symlink(to, filepath.Join(g.directory, link)))
	}
	for pattern, allowed := range map[string]bool{
		"sub/a.txt": true, "sub": true, filepath.Join(g.directory, "sub/a.txt"): true, "in": true, "sub/../sub/a.txt": true,
		"link": false, "up/secret.txt": false, "root/etc/passwd": false, "loop": false, "../secret.txt": false, outside: false,
		"/etc/passwd": false, "no such file": false, "sub/a.txt\x00": false,
	} {
		for _, typ := range []string{"read", "list"} {
			id := "per_" + events.NewID()
			happened(t, g.Log, "c1", asks(id, "ses_1", "call_"+id, typ, []string{pattern}, map[string]string{}))
			g.looked()
			found, _ := g.decisions(id)
			allowed := allowed || typ == "read" && pattern == "no such file" // OpenCode's tool says that there is none
			if (len(found) == 1) != allowed {
				t.Errorf("%s %q: decided %v", typ, pattern, found)
			}
			if allowed {
				is.Equal(found[0].Rule, typ+": <workspace>")
			}
		}
	}
	// One file outside spoils the whole ask, and a session nobody knows has no workspace.
	happened(t, g.Log, "c1",
		asks("per_1", "ses_1", "call", "read", []string{"in", "link"}, map[string]string{}),
		asks("per_2", "ses_9", "call", "read", []string{"in"}, map[string]string{}))
	g.looked()
	for _, id := range []string{"per_1", "per_2"} {
		found, _ := g.decisions(id)
		is.Equal(len(found), 0)
	}
}

func TestUnreadableAskDoesNotStopTheGate(t *testing.T) {
	t.Parallel()
	g := openGate(t)
	happened(t, g.Log, "c1", openCode(events.PermissionAsked, "not an ask"), openCode(events.PermissionAsked, map[string]any{"id": 7}))
	g.looked()
}

func TestRuleDeniesWithItsReason(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	version := keeps(t, g.Handlers, toolPermissions, "r1", `{"tool":"bash","pattern":"git status*","action":"deny","active":true}`)
	happened(t, g.Log, "c1", askBash("per_1", "git status"))
	g.looked()
	found, by := g.decisions("per_1")
	is.Equal(len(found), 1)
	is.Equal(found[0].Decision, events.Denied)
	is.True(found[0].Reason != "") // the model sees it, and goes on
	is.Equal(found[0].RuleRef, events.RuleRef{Rule: "deny bash: git status*", RuleID: "tool_permissions/r1", RuleVersion: version})
	is.Equal(by, []string{events.ActorPolicy})
	is.Equal(len(g.referrals("per_1")), 0)
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
		real, ok := RealPath(dir + "/" + path)
		is.Equal(ok, want != "")
		if ok {
			is.Equal(real, filepath.Join(dir, want))
		}
	}
	_, ok := RealPath("there")
	is.True(!ok)
}
