package permission_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/permission/workspace"
)

func TestPersonWhoWasFirstKeepsTheDecision(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	g.Stop()
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "git status"))
	g.Decide("per_1", events.Denied)
	g.Start()
	g.AwaitIdle()
	found, by := g.Decisions("per_1")
	is.Equal(len(found), 1)
	is.Equal(by, []string{handlerstest.Alice})
}

func TestWhatNoRuleDecidesIsReferredOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	asked := handlerstest.Bash("per_1", "make").Event(t, "c1")
	_, err := g.Log.Append(t.Context(), asked)
	is.NoErr(err)
	g.AwaitIdle()
	found := g.Referrals("per_1")
	is.Equal(len(found), 1)
	is.True(found[0].Reason != "")
	is.Equal(found[0].Cwd, g.Directory) // what a person is shown, and decides on
	referred, _ := handlerstest.Await(t, g.Log, func(d events.PermissionReferred) bool { return d.Permission == "per_1" })
	is.Equal([]string{referred.Actor, referred.Cause}, []string{events.ActorPolicy, asked.ID})

	is.NoErr(g.Gate.React(t.Context(), asked)) // told again
	g.Stop()
	g.Start()
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "make")) // and again by OpenCode
	g.AwaitIdle()
	is.Equal(len(g.Referrals("per_1")), 1)

	g.Decide("per_1", events.Authorized)
	decisions, _ := g.Decisions("per_1")
	is.Equal(decisions[0].Cwd, g.Directory)
	_, _, err = g.Permissions.Submit(t.Context(), permissiontest.SubmitBash("i1", "make"))
	is.NoErr(err)
	handlerstest.Await(t, g.Log, func(d events.PermissionReferred) bool { return d.Permission == "i1" })
}

func TestCommandWhoseDirectoryIsNotKnownIsAsked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	outside := filepath.Dir(g.Directory)
	is.NoErr(os.Symlink(outside, filepath.Join(g.Directory, "up")))
	g.Mu.Lock()
	g.Cwds["call_per_1"], g.Cwds["call_per_2"], g.Cwds["call_per_3"] = "", outside, filepath.Join(g.Directory, "up")
	g.Mu.Unlock()
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "git status"),
		handlerstest.Bash("per_2", "git status"), handlerstest.Bash("per_3", "git status"))
	g.AwaitIdle()
	for id, cwd := range map[string]string{"per_1": "", "per_2": outside, "per_3": outside} {
		found := g.Referrals(id)
		is.Equal(len(found), 1)
		is.Equal(found[0].Cwd, cwd)
	}
}

func TestRuleThatIsMadeDecidesWhatWaits(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "make"),
		handlerstest.Bash("per_2", "make test"), handlerstest.Bash("per_3", "make"),
		handlerstest.Bash("per_4", "rm x"))
	g.AwaitIdle()
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Fact{Data: events.PermissionInterrupted{Permission: "per_3"}})
	version := permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r1",
		`{"tool":"bash","pattern":"make*","action":"allow","active":true}`)
	for _, id := range []string{"per_1", "per_2"} {
		_, d := handlerstest.Await(t, g.Log, func(d events.PermissionDecided) bool { return d.Permission == id })
		is.Equal(d.Decision, events.Authorized)
		is.Equal(d.RuleRef, events.RuleRef{Rule: "bash: make*", RuleID: "tool_permissions/r1", RuleVersion: version})
		is.Equal(d.Cwd, g.Directory)
	}
	// What OpenCode has forgotten, and what the rule is not about, waits; a rule that is paused asks again.
	permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r1",
		`{"tool":"bash","pattern":"make*","action":"allow","active":false}`)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_5", "make all"))
	g.AwaitIdle()
	for _, id := range []string{"per_3", "per_4", "per_5"} {
		found, _ := g.Decisions(id)
		is.Equal(len(found), 0)
	}
}

// Whoever is faster than the policy approves what was asked all the same, where it was asked.
func TestApprovalBeforeThePolicyLookedIsForWhereItWasAsked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	g.Stop()
	other := filepath.Join(g.Directory, "sub")
	is.NoErr(os.Mkdir(other, 0o700))
	g.Cwds["call_per_1"] = other
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "make"))
	_, err := g.Gate.Decide(t.Context(), permission.Decide{Command: handlers.Command{Actor: handlerstest.Alice},
		Chat: "c1", Permission: "per_1", Decision: events.Authorized})
	is.NoErr(err)
	_, data := handlerstest.History(t, g.Log, "c1")
	is.Equal(data[len(data)-1].(events.PermissionDecided).Cwd, other)
	_, err = g.Gate.Decide(t.Context(), permission.Decide{Command: handlers.Command{Actor: handlerstest.Alice},
		Chat: "no chat", Permission: "per_1", Decision: events.Authorized})
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
}

func TestAPersonIsToldWhereALinkLeads(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	outside := filepath.Join(filepath.Dir(g.Directory), "file")
	link := filepath.Join(g.Directory, "note.md")
	is.NoErr(os.Symlink(outside, link)) // that nothing is there yet changes nothing
	permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r1",
		`{"tool":"edit","pattern":"**","action":"allow","active":true}`)
	other := filepath.Join(g.Directory, "other.md")
	patch := func(files ...map[string]string) map[string]any {
		return map[string]any{"filepath": "other.md", "files": files}
	}
	request := func(id, pattern string, metadata any) handlerstest.Fact {
		return handlerstest.Permission(id, "ses_1", "call_"+id, "edit", []string{pattern}, metadata)
	}
	handlerstest.Happened(t, g.Log, "c1",
		request("per_edit", "note.md", map[string]string{"filepath": link}),
		request("per_patch", "other.md", patch(map[string]string{"filePath": link})),
		request("per_moved", "other.md", patch(map[string]string{"filePath": other, "movePath": link})),
		request("per_inside", "other.md", patch(map[string]string{"filePath": other})))
	g.AwaitIdle()
	for id, want := range map[string]string{
		"per_edit":  "it leads to “" + outside + "”, outside the workspace; no rule allows it",
		"per_patch": "it leads to “" + outside + "”, outside the workspace; no rule allows it",
		"per_moved": "Move other.md to note.md, which exists and is overwritten. “note.md” leads to “" + outside + "”, outside the workspace; it is about several files at once",
	} {
		referred := g.Referrals(id)
		is.Equal(len(referred), 1)
		is.Equal(referred[0].Reason, want)
	}
	found, _ := g.Decisions("per_inside")
	is.Equal(len(found), 1) // by the rule
}

// A model chooses the ids of its calls. A request whose call is not certain must not be decided by the arguments of
// another call.
func TestRequestOfACallThatIsNotCertainIsNotAllowed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	is.NoErr(os.WriteFile(filepath.Join(g.Directory, "a.txt"), nil, 0o600))
	is.NoErr(os.WriteFile(filepath.Join(g.Directory, "b.txt"), nil, 0o600))
	read := func(id, call, pattern string) handlerstest.Fact {
		return handlerstest.Permission(id, "ses_1", call, "read", []string{pattern}, map[string]string{})
	}
	g.Mu.Lock()
	g.Several["call_shared"], g.Several["call_shell"] = true, true
	g.Mu.Unlock()

	// The first request stands for the call; the second one is about another file.
	handlerstest.Happened(t, g.Log, "c1", read("per_1", "call_twice", "a.txt"))
	g.AwaitIdle()
	handlerstest.Happened(t, g.Log, "c1", read("per_2", "call_twice", "b.txt"), read("per_3", "call_twice", "a.txt"),
		read("per_4", "call_shared", "a.txt"))
	handlerstest.Happened(t, g.Log, "c1",
		handlerstest.Permission("per_5", "ses_1", "call_shell", "bash", []string{"git status"},
			map[string]string{"command": "git status"}),
		handlerstest.Permission("per_6", "ses_1", "call_two", "bash", []string{"git status"},
			map[string]string{"command": "git status"}),
		handlerstest.Permission("per_7", "ses_1", "call_two", "bash", []string{"git status -s"},
			map[string]string{"command": "git status -s"}))
	g.AwaitIdle()
	found, _ := g.Decisions("per_1")
	is.Equal(found[0].Decision, events.Authorized)
	for _, id := range []string{"per_2", "per_3", "per_4"} {
		found, by := g.Decisions(id)
		is.Equal(len(found), 1)
		is.Equal(found[0].Decision, events.Denied)
		is.Equal(by, []string{events.ActorPolicy})
		// the model reads it, and can call again
		is.Equal(found[0].Reason, "Another tool call of this message has the same id, or the request differs from its call, so it is not known which file would be opened. Call one tool at a time.")
	}
	for _, id := range []string{"per_5", "per_6", "per_7"} {
		left := g.Referrals(id)
		is.Equal(len(left), 1)
		is.Equal(left[0].Cwd, "") // where it would run is not known
	}
}

func TestPatternMeansOneFile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	is.NoErr(err)
	link := filepath.Join(t.TempDir(), "link")
	is.NoErr(os.Symlink(dir, link))
	for _, c := range []struct {
		directory, pattern, path string
		means                    bool
	}{
		{dir, "a.txt", dir + "/a.txt", true},
		{dir, "a.txt", dir + "/sub/../a.txt", true},     // OpenCode cleans the pattern
		{dir, dir[1:] + "/a.txt", dir + "/a.txt", true}, // its worktree is /
		{dir, filepath.Base(dir) + "/a.txt", dir + "/a.txt", true},
		{dir, "../x", filepath.Dir(dir) + "/x", true},
		{dir, "", dir, true},
		{dir, dir + "/a.txt", dir + "/a.txt", true},
		{link, "a.txt", link + "/a.txt", true},
		{link, "a.txt", dir + "/a.txt", true},
		{dir, "a.txt", dir + "/b.txt", false},
		{dir, ".env", dir + "/sub/.env", false},
		{dir, "proc/self/environ", dir + "/proc/self/environ", true},
		{"", "a.txt", "/a.txt", false},
	} {
		is.Equal(workspace.Means(c.directory, c.pattern, c.path), c.means)
	}
}

func TestPersonIsToldWhatAPatchDoesToEachFile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	for _, name := range []string{"notes.md", "package.json", "big.txt"} {
		is.NoErr(os.WriteFile(filepath.Join(g.Directory, name), []byte("x"), 0o600))
	}
	permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r1",
		`{"tool":"edit","pattern":"locked/**","action":"deny","active":true}`)
	type file map[string]string
	patch := func(id string, files ...file) handlerstest.Fact {
		for _, f := range files {
			for _, key := range []string{"filePath", "movePath"} {
				if f[key] != "" {
					f[key] = filepath.Join(g.Directory, f[key])
				}
			}
		}
		return handlerstest.Permission(id, "ses_1", "call_"+id, "edit", []string{"notes.md"},
			map[string]any{"filepath": "notes.md", "diff": "-a\n+b", "files": files})
	}
	handlerstest.Happened(t, g.Log, "c1",
		patch("per_1", file{"filePath": "notes.md", "movePath": "package.json", "type": "move"}),
		patch("per_2", file{"filePath": "notes.md", "movePath": "new.md", "type": "move"}),
		patch("per_3", file{"filePath": "big.txt", "type": "add"}, file{"filePath": "a\nb", "type": "add"},
			file{"filePath": "notes.md", "type": "delete"}),
		patch("per_4", file{"filePath": "notes.md", "type": "update"}),
		handlerstest.Permission("per_5", "ses_1", "call_5", "edit", []string{"index.js"},
			map[string]string{"filepath": g.Directory + "/index.js", "diff": "+[redacted]"}),
		patch("per_6", file{"filePath": "notes.md", "type": "update"}, file{"filePath": "locked/a.txt", "type": "update"}),
		patch("per_7", file{"filePath": "notes.md", "movePath": "locked/b.txt", "type": "move"}))
	g.AwaitIdle()
	for id, starts := range map[string]string{
		"per_1": "Move notes.md to package.json, which exists and is overwritten. ",
		"per_2": "Move notes.md to new.md. ",
		"per_3": `Add big.txt, which exists and is overwritten; Add "a\nb"; Delete notes.md. `,
		"per_4": "no rule allows it",
		"per_5": "A part of this request is hidden, because it holds a registered secret. ",
	} {
		left := g.Referrals(id)
		is.Equal(len(left), 1)
		if !strings.HasPrefix(left[0].Reason, starts) {
			t.Errorf("%s: %q does not begin with %q", id, left[0].Reason, starts)
		}
	}
	for _, id := range []string{"per_6", "per_7"} { // a rule denies one of the files
		found, _ := g.Decisions(id)
		is.Equal(len(found), 1)
		is.Equal(found[0].RuleRef.Rule, "deny edit: locked/**")
	}
}
