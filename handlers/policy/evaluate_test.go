package policy_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/policy"
	"pocketcoder/ops/expect"
)

// bash returns a request to run a command in the workspace.
func bash(command string) policy.Input {
	return policy.Input{Type: "bash", Patterns: []string{command}, Command: command, Cwd: "/workspace", Root: "/workspace"}
}

func TestDefaultsAreSilentAboutLookingAround(t *testing.T) {
	for _, command := range []string{
		"git status", "git log --oneline -5", "git diff HEAD~1 -- src", "git show HEAD:go.mod", "git branch --show-current",
		"git remote -v", "git stash list",
		"ls -la", "cat go.mod | head -5", "tail -n 3 a.log", "wc -l a b", "grep -rn 'x' src", "rg -n foo",
		"find . -name '*.go' -type f", "pwd", "echo done", "which go",
		"jq .scripts package.json", "sed -n '1,20p' a.go", "cd src && ls && git status --short",
		"test -f go.mod && echo yes", "wc -l < a.txt",
	} {
		t.Run(command, func(t *testing.T) {
			is := is.New(t)
			v := policy.Evaluate(policy.Defaults, bash(command))
			is.Equal(v.Action, policy.Allow) // silent
			is.True(len(v.Rules) > 0)        // and says by which rule
		})
	}
}

func TestDefaultsAskForWhatRunsOrWrites(t *testing.T) {
	for _, command := range []string{
		"go test ./...", "npm run build", "make", "git commit -m x", "git push", "git branch x", "git tag v1",
		"git remote add a b", "git stash", "git stash drop", "rm a", "touch a", "echo x > a",
		"git status && rm -rf /", "git diff --ext-diff", "rg --pre x y", "cat .env", "find . -delete", "sed -i s/a/b/ f",
		"curl https://example.com", "env", "printenv", "python3 a.py", "sort -o a b",
	} {
		t.Run(command, func(t *testing.T) {
			is := is.New(t)
			is.Equal(policy.Evaluate(policy.Defaults, bash(command)).Action, policy.AskPerson)
		})
	}
}

func TestBackupsAndVariantsOfSecretFilesAreAsked(t *testing.T) {
	for name, want := range map[string]policy.Action{
		".git/modules/sub/config": policy.AskPerson, ".git/worktrees/a/config.worktree": policy.AskPerson, ".git/FETCH_HEAD": policy.AskPerson, "sub/.git/config": policy.AskPerson,
		".git/config.bak": policy.AskPerson, ".git/HEAD": policy.Allow, "config": policy.Allow, "src/config.worktree": policy.Allow,
		".env~": policy.AskPerson, ".env-prod": policy.AskPerson, ".env_old": policy.AskPerson, ".env.local": policy.AskPerson, ".ENV~": policy.AskPerson, ".env.swp": policy.AskPerson,
		".env.example": policy.Allow, ".environment": policy.Allow, ".env2": policy.Allow, "env~": policy.Allow,
		"server.key~": policy.AskPerson, "server.pem.bak": policy.AskPerson, "id_rsa.orig": policy.AskPerson, "wallet.dat.save": policy.AskPerson, ".netrc.swp": policy.AskPerson,
		".id_rsa.swp": policy.AskPerson, "id_rsa.bak~": policy.AskPerson, ".ssh.bak/known": policy.AskPerson, "a.go~": policy.Allow, "a.go.orig": policy.Allow, "~": policy.Allow, ".swp": policy.Allow,
	} {
		v := policy.Evaluate(policy.Defaults, policy.Input{Type: "read", Path: "/workspace/" + name, Cwd: "/workspace",
			Root: "/workspace"})
		if v.Action != want {
			t.Errorf("%s: %s: %s", name, v.Action, v.Reason)
		}
	}
}

// A command that follows a file runs until it is stopped, and would keep its place in the sandbox.
func TestTailAsksBeforeItFollowsAFile(t *testing.T) {
	for _, command := range []string{"tail -f a.log", "tail -n 5 -F a.log", "tail -5f a.log", "tail -qf a.log",
		"tail --follow a.log", "tail --follow=name a.log", "tail --foll a.log", "tail --retry a.log"} {
		if v := policy.Evaluate(policy.Defaults, bash(command)); v.Action != policy.AskPerson {
			t.Errorf("%s: %s: %s", command, v.Action, v.Reason)
		}
	}
	is := is.New(t)
	is.Equal(policy.Evaluate(policy.Defaults, bash("tail -f a.log")).Reason,
		"“-f” makes “tail” run until it is stopped; a rule reaches it only when it names it")
	is.Equal(policy.Evaluate([]policy.Rule{{Permission: "bash", Pattern: "tail -f *"}}, bash("tail -f a.log")).Action,
		policy.Allow)
	is.Equal(policy.Evaluate(policy.Defaults, bash("tail -n 5 -q a.log")).Action, policy.Allow)
}

func TestAReasonNamesTheWord(t *testing.T) {
	rules := append([]policy.Rule{{Permission: "bash", Pattern: "*"}}, policy.Defaults...)
	for command, reason := range map[string]string{
		"ls | sh":         "“sh” is a shell; a rule does not reach what it runs",
		"nice ls":         "“nice” runs what it is given; a rule does not reach that",
		"sort --comp=x a": "“--comp=x” is not an option of “sort” that is known to be harmless",
		"cat ../x":        "“../x” is outside the workspace",
		"echo $(id)":      "“$(id)” is expanded by the shell",
		"A=1 ls":          "“A=1” sets a variable, which changes what programs do",
		"echo x > out":    "no rule allows the shell to write “out”",
		"cat .env":        "“/workspace/.env” may hold secrets",
		"ls ;; ls":        "bash would not read it: `;;` can only be used in a case clause",
		"ls\u200b":        "the command cannot be trusted: it holds the character U+200B, which cannot be seen",
		"cat " + strings.Repeat("x", 70) + "/../..": "“" + strings.Repeat("x", 59) + "…” is outside the workspace",
	} {
		t.Run(command, func(t *testing.T) {
			is := is.New(t)
			v := policy.Evaluate(rules, bash(command))
			is.Equal(v.Reason, reason)
			is.Equal(len(v.Rules), 0)
		})
	}
	is := is.New(t)
	is.Equal(policy.Evaluate(policy.Defaults, bash("git status && rm -rf /")).Reason, "no rule allows “rm -rf /”")
	is.Equal(policy.Evaluate(policy.Defaults, bash("git status; git commit -am 'a  b' > /dev/null")).Reason,
		"no rule allows “git commit -am 'a  b'”")
	is.Equal(policy.Evaluate(rules, bash(`detach ls "a b"`)).Reason,
		"no rule allows “ls \"a b\"” to run on by itself: that takes one for “detach …” too")
}

// Of a command, OpenCode asks with the folders alone.
func TestAReasonNamesTheFoldersOutside(t *testing.T) {
	is := is.New(t)
	a := policy.Input{Type: "external_directory", Patterns: []string{"/etc/*", "/root/*", "/*"}, Cwd: "/workspace",
		Root: "/workspace"}
	v := policy.Evaluate(append([]policy.Rule{{Permission: "external_directory", Pattern: "/etc/**"}},
		policy.Defaults...), a)
	is.Equal(v, policy.Verdict{Action: policy.AskPerson, Reason: "it reaches outside the workspace: “/etc”, “/root”, “/”"})
}

func TestLeavingTheWorkspaceIsDecidedByTheToolsOwnRequest(t *testing.T) {
	a := policy.Input{Type: "external_directory", Patterns: []string{"/data/*", "/root/*"}, Cwd: "/workspace",
		Root: "/workspace", Own: "bash"}
	for name, c := range map[string]struct {
		rules []policy.Rule
		want  policy.Action
	}{
		"no rule":                 {nil, policy.Allow},
		"a rule denies a folder":  {[]policy.Rule{{Permission: "external_directory", Pattern: "/root/**", Action: policy.Deny}}, policy.Deny},
		"a rule denies it itself": {[]policy.Rule{{Permission: "external_directory", Pattern: "/root", Action: policy.Deny}}, policy.Deny},
		"a rule asks for all":     {[]policy.Rule{{Permission: "external_directory", Pattern: "*", Action: policy.AskPerson}}, policy.AskPerson},
		"a rule about another":    {[]policy.Rule{{Permission: "external_directory", Pattern: "/etc/**", Action: policy.Deny}}, policy.Allow},
	} {
		t.Run(name, func(t *testing.T) {
			is.New(t).Equal(policy.Evaluate(append(c.rules, policy.Defaults...), a).Action, c.want)
		})
	}
}

func TestWhatOpenCodeCannotUseIsDenied(t *testing.T) {
	irregular := func(path string) string { return map[string]string{"/workspace/pipe": "a FIFO"}[path] }
	visible := func(path string) bool { return strings.HasPrefix(path, "/data/") }
	everything := policy.Rule{Permission: "read", Pattern: "/**"}
	for name, c := range map[string]struct {
		ask  policy.Input
		want string // of the denial; "" is no denial
	}{
		"a FIFO":            {policy.Input{Type: "read", Path: "pipe"}, "“/workspace/pipe” is a FIFO. OpenCode opens only regular files and directories."},
		"a FIFO to search":  {policy.Input{Type: "grep", Path: "pipe", Patterns: []string{"x"}}, "is a FIFO"},
		"one of a patch":    {policy.Input{Type: "edit", Path: "/workspace/a", Patterns: []string{"/workspace/a", "/workspace/pipe"}}, "is a FIFO"},
		"a file":            {policy.Input{Type: "read", Path: "a"}, ""},
		"what is not shown": {policy.Input{Type: "read", Path: "/home/x"}, "“/home/x” does not exist for OpenCode."},
		"what is shown":     {policy.Input{Type: "read", Path: "/data/x"}, ""},
		// the sandbox decides what exists for it
		"a command about it": {policy.Input{Type: "bash", Command: "cat /home/x pipe"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			c.ask.Cwd, c.ask.Root, c.ask.Irregular, c.ask.Visible = "/workspace", "/workspace", irregular, visible
			v := policy.Evaluate(append([]policy.Rule{everything}, policy.Defaults...), c.ask)
			is.Equal(v.Action == policy.Deny, c.want != "")
			expect.Contains(t, v.Reason, c.want)
		})
	}
}

func TestASearchIsDecidedByItsFolder(t *testing.T) {
	resolve := func(p string) (string, bool) {
		return strings.NewReplacer("/workspace/link", "/outside", "/workspace/deep", "/outside/below").Replace(p), true
	}
	for path, want := range map[string]policy.Action{
		"": policy.Allow, "src": policy.Allow, "/workspace": policy.Allow, "src/..": policy.Allow, "link": policy.AskPerson, "/workspace/link/x": policy.AskPerson, "deep/..": policy.AskPerson,
		"/outside": policy.AskPerson, "..": policy.AskPerson, ".env": policy.AskPerson, "src/.ssh": policy.AskPerson, "~": policy.AskPerson,
	} {
		for _, tool := range []string{"grep", "glob"} {
			t.Run(tool+" "+path, func(t *testing.T) {
				a := policy.Input{Type: tool, Patterns: []string{"x"}, Path: path, Cwd: "/workspace", Root: "/workspace",
					Resolve: resolve}
				is.New(t).Equal(policy.Evaluate(policy.Defaults, a).Action, want)
			})
		}
	}
	symbols := policy.Input{Type: "lsp", Patterns: []string{"*"}, Path: "link/main.go", Cwd: "/workspace",
		Root: "/workspace", Resolve: resolve}
	allowed := append([]policy.Rule{{Permission: "lsp", Pattern: "*"}}, policy.Defaults...)
	is := is.New(t)
	is.Equal(policy.Evaluate(allowed, symbols).Action, policy.AskPerson)
	symbols.Path = "main.go"
	is.Equal(policy.Evaluate(allowed, symbols).Action, policy.Allow)
}

func TestWhatIsNotKnownIsAsked(t *testing.T) {
	rules := append([]policy.Rule{{Permission: "write", Pattern: "docs/**"}}, policy.Defaults...)
	for name, a := range map[string]policy.Input{
		"no folder":           {Type: "bash", Command: "ls", Root: "/workspace"},
		"no workspace":        {Type: "bash", Command: "ls", Cwd: "/workspace"},
		"a folder outside":    {Type: "bash", Command: "ls", Cwd: "/", Root: "/workspace"},
		"a folder beside":     {Type: "bash", Command: "ls", Cwd: "/workspace2", Root: "/workspace"},
		"relative path alone": {Type: "write", Path: "docs/a", Root: "/workspace"},
		"no path":             {Type: "read", Patterns: []string{"a"}, Cwd: "/workspace", Root: "/workspace"},
		"unresolved":          {Type: "read", Path: "a", Cwd: "/workspace", Root: "/workspace", Resolve: func(string) (string, bool) { return "", false }},
		"unresolved argument": {Type: "bash", Command: "cat a", Cwd: "/workspace", Root: "/workspace", Resolve: func(string) (string, bool) { return "", false }},
		"nothing":             {},
		"nothing to look for": {Type: "grep", Root: "/workspace"},
		"no notes":            {Type: "todowrite"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			is.Equal(policy.Evaluate(rules, a).Action, policy.AskPerson)
		})
	}
}

func TestExplainSaysWhatBecameOfEachRule(t *testing.T) {
	is := is.New(t)
	rules := []policy.Rule{
		{Permission: "bash", Pattern: "git status*", ID: "tool_permissions/a", Version: 7},
		{Permission: "edit", Pattern: "docs/**"},
		{Permission: "bash", Pattern: "rm*"},
		{Permission: "bash", Pattern: "a && b"},
		{Permission: "write", Pattern: "out/*"},
	}
	v, checked := policy.Explain(rules, bash("git status > out/a.txt"))
	is.Equal(v.Action, policy.Allow)
	is.Equal(v.Rules, []policy.Rule{rules[0], rules[4]}) // with record and version
	is.Equal(v.Reason, "rules allow all of it: bash: git status*, write: out/*")
	var why []string
	for _, l := range checked {
		why = append(why, l.Why)
	}
	is.Equal(why, []string{"matches", "is for edit", "does not match",
		"is broken: column 3: '&' is shell syntax; a rule is for one command", "matches “out/a.txt”"})
	is.True(checked[0].Matched && !checked[2].Matched && checked[4].Matched)
}

func TestSecretsAndSettingsOfTheWorkspaceCountNotItsOwnPlace(t *testing.T) {
	is := is.New(t)
	root := "/home/me/.config/opencode/worktree"
	a := policy.Input{Type: "edit", Path: "main.go", Cwd: root, Root: root}
	rules := []policy.Rule{{Permission: "edit", Pattern: policy.Inside}}
	is.Equal(policy.Evaluate(rules, a).Action, policy.Allow)
	a.Path = ".config/x"
	is.Equal(policy.Evaluate(rules, a).Action, policy.AskPerson)
}

// A link is judged by where it leads, and a person is told so: what is asked names the link alone.
func TestALinkIsWhereItLeads(t *testing.T) {
	links := map[string]string{
		"/workspace/docs/out.md": "/outside/file", "/workspace/docs/in.md": "/workspace/Makefile", "/workspace/docs/odd.md": "/outside/a\u202e" + strings.Repeat("x", 200),
	}
	resolve := func(p string) (string, bool) {
		if to, ok := links[p]; ok {
			return to, true
		}
		return p, true
	}
	rule := func(pattern string) policy.Rule { return policy.Rule{Permission: "edit", Pattern: pattern} }
	named := []policy.Rule{rule("docs/**"), rule("docs/out.md"), rule("/workspace/docs/out.md"), rule("/workspace/**"),
		rule("**"), rule("*"), rule(policy.Inside)}
	const out = "it leads to “/outside/file”, outside the workspace; "
	for name, c := range map[string]struct {
		typ    string
		paths  []string
		rules  []policy.Rule
		action policy.Action
		reason string
	}{
		"an edit outside":          {"edit", []string{"docs/out.md"}, named, policy.AskPerson, out + "no rule allows it"},
		"a write outside":          {"write", []string{"/workspace/docs/out.md"}, named, policy.AskPerson, out + "no rule allows it"},
		"a read outside":           {"read", []string{"docs/out.md"}, policy.Defaults, policy.AskPerson, out + "no rule allows it"},
		"a rule that asks":         {"edit", []string{"docs/out.md"}, []policy.Rule{{Permission: "edit", Pattern: "*", Action: policy.AskPerson}}, policy.AskPerson, out + "a rule wants a person to decide: ask edit: *"},
		"a rule names where":       {"edit", []string{"docs/out.md"}, []policy.Rule{rule("/outside/*")}, policy.Allow, "a rule allows it: edit: /outside/*"},
		"a link inside":            {"edit", []string{"docs/in.md"}, []policy.Rule{rule("docs/**")}, policy.AskPerson, "it leads to “/workspace/Makefile”; no rule allows it"},
		"no link":                  {"edit", []string{"docs/a.md"}, nil, policy.AskPerson, "no rule allows it"},
		"several":                  {"edit", []string{"docs/in.md", "docs/out.md"}, named, policy.AskPerson, "“docs/out.md” leads to “/outside/file”, outside the workspace; it is about several files at once"},
		"what cannot be seen, cut": {"edit", []string{"docs/odd.md"}, named, policy.AskPerson, "it leads to “/outside/a�" + strings.Repeat("x", 108) + "…”, outside the workspace; no rule allows it"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			v := policy.Evaluate(c.rules, policy.Input{Type: c.typ, Path: c.paths[0], Patterns: c.paths, Cwd: "/workspace",
				Root: "/workspace", Resolve: resolve})
			is.Equal([]any{v.Action, v.Reason}, []any{c.action, c.reason})
		})
	}
}

func TestSuggestGivesTheSmallestSensibleRules(t *testing.T) {
	path := func(permission, p string) policy.Input {
		return policy.Input{Type: permission, Path: p, Cwd: "/workspace", Root: "/workspace"}
	}
	for name, c := range map[string]struct {
		ask    policy.Input
		always []string
		want   string // rules, joined by comma
	}{
		"OpenCode's pattern":         {bash("npm run build"), []string{"npm run build *"}, "bash: npm run build *"},
		"a script of a project":      {bash("npm run build --silent"), nil, "bash: npm run build *"},
		"a target":                   {bash("make test"), nil, "bash: make test *"},
		"a command and sub-command":  {bash("git push origin main"), []string{"git push *"}, "bash: git push *"},
		"without OpenCode's":         {bash("cargo update --dry-run"), nil, "bash: cargo update *"},
		"what defaults allow is not": {bash("cd src && go test ./... | tail -5"), []string{"cd *", "go test *", "tail *"}, "bash: go test *"},
		"as narrow as needed":        {bash("git branch new"), []string{"git branch *"}, "bash: git branch new *"},
		"a script by its name":       {bash("python3 a.py --x"), []string{"python3 *"}, "bash: python3 a.py *"},
		"one for each command":       {bash("touch a && mkdir b"), nil, "bash: touch *,bash: mkdir *"},
		"nothing reaches a shell":    {bash("sh -c id"), []string{"sh *"}, ""},
		"nor an unreadable command":  {bash("echo $(id)"), []string{"echo *"}, ""},
		"nor a redirect":             {bash("echo x > a"), []string{"echo *"}, ""},
		"a lone star is no pattern":  {bash("touch a"), []string{"*"}, "bash: touch *"},
		"files beside":               {path("edit", "/workspace/docs/a.md"), []string{"*"}, "edit: docs/*"},
		"a file of the workspace":    {path("edit", "README.md"), nil, "edit: README.md"},
		"a protected file":           {path("edit", ".git/config"), nil, ""},
		"a file outside":             {path("read", "/opt/a.txt"), nil, "read: /opt/a.txt"},
		"a folder named **":          {path("edit", "/workspace/**/a.md"), nil, ""},
		"a file named *":             {path("edit", "*"), nil, ""},
		"an address":                 {policy.Input{Type: "webfetch", URL: "https://docs.example.org:8443/a"}, nil, "webfetch: https://docs.example.org:8443/*"},
		"a private address":          {policy.Input{Type: "webfetch", URL: "http://10.0.0.1/"}, nil, ""},
		"a tool":                     {policy.Input{Type: "github_list", Patterns: []string{"*"}}, []string{"*"}, "mcp: github_list"},
		"a subagent":                 {policy.Input{Type: "task", Patterns: []string{"explore"}}, nil, "task: explore"},
		"a loop":                     {policy.Input{Type: "doom_loop", Patterns: []string{"bash"}}, nil, ""},
		"a budget":                   {policy.Input{Type: "budget", Patterns: []string{"1"}}, nil, ""},
		"a created name":             {policy.Input{Type: "keep", Patterns: []string{".envrc"}}, nil, ""},
		"nothing":                    {policy.Input{}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			var got []string
			rules := policy.Suggest(c.ask, c.always)
			for _, r := range rules {
				is.NoErr(r.Check())
				got = append(got, r.String())
			}
			is.Equal(strings.Join(got, ","), c.want)
			if c.want != "" {
				is.Equal(policy.Evaluate(append(rules, policy.Defaults...), c.ask).Action, policy.Allow) // it would have
			}
		})
	}
}
