package handlers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
)

func TestPersonWhoWasFirstKeepsTheDecision(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	g.stop()
	happened(t, g.Log, "c1", askBash("per_1", "git status"))
	g.decide("per_1", events.Denied)
	g.start()
	g.looked()
	found, by := g.decisions("per_1")
	is.Equal(len(found), 1)
	is.Equal(by, []string{alice})
}

// referrals are those of one ask.
func (g *gate) referrals(permission string) (found []events.PermissionReferred) {
	g.t.Helper()
	_, data := history(g.t, g.Log, "c1")
	for _, d := range of[events.PermissionReferred](data) {
		if d.Permission == permission {
			found = append(found, d)
		}
	}
	return found
}

func TestWhatNoRuleDecidesIsReferredOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	asked := askBash("per_1", "make").event(t, "c1")
	_, err := g.Log.Append(t.Context(), asked)
	is.NoErr(err)
	g.looked()
	found := g.referrals("per_1")
	is.Equal(len(found), 1)
	is.True(found[0].Reason != "")
	is.Equal(found[0].Cwd, g.directory) // what a person is shown, and decides on
	referred, _ := await(t, g.Log, func(d events.PermissionReferred) bool { return d.Permission == "per_1" })
	is.Equal([]string{referred.Actor, referred.Cause}, []string{events.ActorPolicy, asked.ID})

	is.NoErr(g.Gate.react(t.Context(), asked)) // told again
	g.stop()
	g.start()
	happened(t, g.Log, "c1", askBash("per_1", "make")) // and again by OpenCode
	g.looked()
	is.Equal(len(g.referrals("per_1")), 1)

	g.decide("per_1", events.Authorized)
	decisions, _ := g.decisions("per_1")
	is.Equal(decisions[0].Cwd, g.directory)
	_, _, err = g.RequestPermission(t.Context(), intends("i1", "make"))
	is.NoErr(err)
	await(t, g.Log, func(d events.PermissionReferred) bool { return d.Permission == "i1" })
}

func TestCommandWhoseDirectoryIsNotKnownIsAsked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	outside := filepath.Dir(g.directory)
	is.NoErr(os.Symlink(outside, filepath.Join(g.directory, "up")))
	g.mu.Lock()
	g.cwds["call_per_1"], g.cwds["call_per_2"], g.cwds["call_per_3"] = "", outside, filepath.Join(g.directory, "up")
	g.mu.Unlock()
	happened(t, g.Log, "c1", askBash("per_1", "git status"), askBash("per_2", "git status"), askBash("per_3", "git status"))
	g.looked()
	for id, cwd := range map[string]string{"per_1": "", "per_2": outside, "per_3": outside} {
		found := g.referrals(id)
		is.Equal(len(found), 1)
		is.Equal(found[0].Cwd, cwd)
	}
}

func TestRuleThatIsMadeDecidesWhatWaits(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	happened(t, g.Log, "c1", askBash("per_1", "make"), askBash("per_2", "make test"), askBash("per_3", "make"), askBash("per_4", "rm x"))
	g.looked()
	happened(t, g.Log, "c1", fact{data: events.PermissionInterrupted{Permission: "per_3"}})
	version := keeps(t, g.Handlers, toolPermissions, "r1", `{"tool":"bash","pattern":"make*","action":"allow","active":true}`)
	for _, id := range []string{"per_1", "per_2"} {
		_, d := await(t, g.Log, func(d events.PermissionDecided) bool { return d.Permission == id })
		is.Equal(d.Decision, events.Authorized)
		is.Equal(d.RuleRef, events.RuleRef{Rule: "bash: make*", RuleID: "tool_permissions/r1", RuleVersion: version})
		is.Equal(d.Cwd, g.directory)
	}
	// What OpenCode has forgotten, and what the rule is not about, waits; a rule that is paused asks again.
	keeps(t, g.Handlers, toolPermissions, "r1", `{"tool":"bash","pattern":"make*","action":"allow","active":false}`)
	happened(t, g.Log, "c1", askBash("per_5", "make all"))
	g.looked()
	for _, id := range []string{"per_3", "per_4", "per_5"} {
		found, _ := g.decisions(id)
		is.Equal(len(found), 0)
	}
}

// Whoever is faster than the policy approves what was asked all the same, where it was asked.
func TestApprovalBeforeThePolicyLookedIsForWhereItWasAsked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	g.stop()
	other := filepath.Join(g.directory, "sub")
	is.NoErr(os.Mkdir(other, 0o700))
	g.cwds["call_per_1"] = other
	happened(t, g.Log, "c1", askBash("per_1", "make"))
	_, err := g.Gate.Decide(t.Context(), DecidePermission{Command: Command{Actor: alice}, Chat: "c1", Permission: "per_1", Decision: events.Authorized})
	is.NoErr(err)
	_, data := history(t, g.Log, "c1")
	is.Equal(data[len(data)-1].(events.PermissionDecided).Cwd, other)
	_, err = g.Gate.Decide(t.Context(), DecidePermission{Command: Command{Actor: alice}, Chat: "no chat", Permission: "per_1", Decision: events.Authorized})
	is.Equal(refusal(t, err), Invalid)
}

// One ask at which the policy itself fails must not stop all.
func TestAskAtWhichThePolicyFailsIsForAPerson(t *testing.T) {
	is := is.New(t)
	v := judge(policy.Defaults, policy.Ask{
		Type: "read", Patterns: []string{"a"}, Path: "/a", Root: "/", Cwd: "/", Resolve: func(string) (string, bool) { panic("a bug") },
	})
	is.Equal(v.Action, policy.AskPerson)
	is.Equal(v.Reason, "the policy failed to read it: a bug")
}

func TestAPersonIsToldWhereALinkLeads(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	outside := filepath.Join(filepath.Dir(g.directory), "file")
	link := filepath.Join(g.directory, "note.md")
	is.NoErr(os.Symlink(outside, link)) // that nothing is there yet changes nothing
	keeps(t, g.Handlers, toolPermissions, "r1", `{"tool":"edit","pattern":"**","action":"allow","active":true}`)
	other := filepath.Join(g.directory, "other.md")
	patch := func(files ...map[string]string) map[string]any {
		return map[string]any{"filepath": "other.md", "files": files}
	}
	ask := func(id, pattern string, metadata any) fact {
		return asks(id, "ses_1", "call_"+id, "edit", []string{pattern}, metadata)
	}
	happened(t, g.Log, "c1",
		ask("per_edit", "note.md", map[string]string{"filepath": link}),
		ask("per_patch", "other.md", patch(map[string]string{"filePath": link})),
		ask("per_moved", "other.md", patch(map[string]string{"filePath": other, "movePath": link})),
		ask("per_inside", "other.md", patch(map[string]string{"filePath": other})))
	g.looked()
	for id, want := range map[string]string{
		"per_edit":  "it leads to “" + outside + "”, outside the workspace; no rule allows it",
		"per_patch": "it leads to “" + outside + "”, outside the workspace; no rule allows it",
		"per_moved": "Move other.md to note.md, which exists and is overwritten. “note.md” leads to “" + outside + "”, outside the workspace; it is about several files at once",
	} {
		referred := g.referrals(id)
		is.Equal(len(referred), 1)
		is.Equal(referred[0].Reason, want)
	}
	found, _ := g.decisions("per_inside")
	is.Equal(len(found), 1) // by the rule
}

// A model chooses the ids of its calls. A request whose call is not certain must not be decided by the arguments of another call.
func TestRequestOfACallThatIsNotCertainIsNotAllowed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	is.NoErr(os.WriteFile(filepath.Join(g.directory, "a.txt"), nil, 0o600))
	is.NoErr(os.WriteFile(filepath.Join(g.directory, "b.txt"), nil, 0o600))
	read := func(id, call, pattern string) fact {
		return asks(id, "ses_1", call, "read", []string{pattern}, map[string]string{})
	}
	g.mu.Lock()
	g.several["call_shared"], g.several["call_shell"] = true, true
	g.mu.Unlock()

	// The first request stands for the call; the second one is about another file.
	happened(t, g.Log, "c1", read("per_1", "call_twice", "a.txt"))
	g.looked()
	happened(t, g.Log, "c1", read("per_2", "call_twice", "b.txt"), read("per_3", "call_twice", "a.txt"), read("per_4", "call_shared", "a.txt"))
	happened(t, g.Log, "c1",
		asks("per_5", "ses_1", "call_shell", "bash", []string{"git status"}, map[string]string{"command": "git status"}),
		asks("per_6", "ses_1", "call_two", "bash", []string{"git status"}, map[string]string{"command": "git status"}),
		asks("per_7", "ses_1", "call_two", "bash", []string{"git status -s"}, map[string]string{"command": "git status -s"}))
	g.looked()
	found, _ := g.decisions("per_1")
	is.Equal(found[0].Decision, events.Authorized)
	for _, id := range []string{"per_2", "per_3", "per_4"} {
		found, by := g.decisions(id)
		is.Equal(len(found), 1)
		is.Equal(found[0].Decision, events.Denied)
		is.Equal(by, []string{events.ActorPolicy})
		is.Equal(found[0].Reason, severalCalls) // the model reads it, and can call again
	}
	for _, id := range []string{"per_5", "per_6", "per_7"} {
		left := g.referrals(id)
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
		is.Equal(means(c.directory, c.pattern, c.path), c.means)
	}
}

func TestPersonIsToldWhatAPatchDoesToEachFile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	for _, name := range []string{"notes.md", "package.json", "big.txt"} {
		is.NoErr(os.WriteFile(filepath.Join(g.directory, name), []byte("x"), 0o600))
	}
	keeps(t, g.Handlers, toolPermissions, "r1", `{"tool":"edit","pattern":"locked/**","action":"deny","active":true}`)
	type file map[string]string
	patch := func(id string, files ...file) fact {
		for _, f := range files {
			for _, key := range []string{"filePath", "movePath"} {
				if f[key] != "" {
					f[key] = filepath.Join(g.directory, f[key])
				}
			}
		}
		return asks(id, "ses_1", "call_"+id, "edit", []string{"notes.md"}, map[string]any{"filepath": "notes.md", "diff": "-a\n+b", "files": files})
	}
	happened(t, g.Log, "c1",
		patch("per_1", file{"filePath": "notes.md", "movePath": "package.json", "type": "move"}),
		patch("per_2", file{"filePath": "notes.md", "movePath": "new.md", "type": "move"}),
		patch("per_3", file{"filePath": "big.txt", "type": "add"}, file{"filePath": "a\nb", "type": "add"}, file{"filePath": "notes.md", "type": "delete"}),
		patch("per_4", file{"filePath": "notes.md", "type": "update"}),
		asks("per_5", "ses_1", "call_5", "edit", []string{"index.js"}, map[string]string{"filepath": g.directory + "/index.js", "diff": "+[redacted]"}),
		patch("per_6", file{"filePath": "notes.md", "type": "update"}, file{"filePath": "locked/a.txt", "type": "update"}),
		patch("per_7", file{"filePath": "notes.md", "movePath": "locked/b.txt", "type": "move"}))
	g.looked()
	for id, starts := range map[string]string{
		"per_1": "Move notes.md to package.json, which exists and is overwritten. ",
		"per_2": "Move notes.md to new.md. ",
		"per_3": `Add big.txt, which exists and is overwritten; Add "a\nb"; Delete notes.md. `,
		"per_4": "no rule allows it",
		"per_5": "A part of this request is hidden, because it holds a registered secret. ",
	} {
		left := g.referrals(id)
		is.Equal(len(left), 1)
		if !strings.HasPrefix(left[0].Reason, starts) {
			t.Errorf("%s: %q does not begin with %q", id, left[0].Reason, starts)
		}
	}
	for _, id := range []string{"per_6", "per_7"} { // a rule denies one of the files
		found, _ := g.decisions(id)
		is.Equal(len(found), 1)
		is.Equal(found[0].RuleRef.Rule, "deny edit: locked/**")
	}
}
