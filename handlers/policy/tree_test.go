package policy_test

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/policy/files"
	"pocketcoder/handlers/policy/program"
)

// withFiles adds a workspace with these files to a request; a name with an arrow is a symlink.
func withFiles(a policy.Input, names ...string) policy.Input {
	folders := map[string]map[string]files.Entry{}
	links := map[string]string{}
	add := func(p string, kind files.Kind) {
		for ; p != "/"; p, kind = path.Dir(p), files.Folder {
			if folders[path.Dir(p)] == nil {
				folders[path.Dir(p)] = map[string]files.Entry{}
			}
			folders[path.Dir(p)][path.Base(p)] = files.Entry{Name: path.Base(p), Kind: kind,
				Plain: strings.HasSuffix(p, ".git/config")}
		}
	}
	for _, name := range names {
		if link, to, ok := strings.Cut(name, " -> "); ok {
			add("/workspace/"+link, files.Link)
			links["/workspace/"+link] = to
			continue
		}
		add("/workspace/"+name, files.File)
	}
	a.Resolve = func(p string) (string, bool) {
		for link, to := range links {
			if within, ok := strings.CutPrefix(p, link); ok && (within == "" || within[0] == '/') {
				return to + within, true
			}
		}
		return p, true
	}
	a.List = func(folder string, most int) ([]files.Entry, bool) {
		entries := slices.Collect(maps.Values(folders[folder]))
		return entries[:min(most, len(entries))], true
	}
	return a
}

// What reads a folder with all that lies below it reads what rules keep and what may hold secrets, too.
func TestProgramsThatReadTreesAskForWhatLiesBelow(t *testing.T) {
	t.Parallel()
	files := []string{"src/a.go", "src/private/b", "deploy/server.key", "deploy/link -> /workspace/src",
		"away/link -> /outside", ".hidden/c.pem", ".git/config", "docs/a.md"}
	rules := append([]policy.Rule{{Permission: "read", Pattern: "src/private/**", Action: policy.Deny}},
		policy.Defaults...)
	for _, pattern := range []string{"cp*", "tar*", "zip*", "mv*", "rm*"} {
		rules = append(rules, policy.Rule{Permission: "bash", Pattern: pattern})
	}
	for command, want := range map[string]policy.Action{
		"grep -r x src": policy.AskPerson, "grep -R x src": policy.AskPerson, "grep -rn x .": policy.AskPerson, "grep -r x": policy.AskPerson, "grep --recursive x src": policy.AskPerson,
		"grep -d recurse x src": policy.AskPerson, "grep --directories=recurse x src": policy.AskPerson, "grep -rn x docs": policy.Allow, "grep x src/a.go": policy.Allow,
		"grep -rn --exclude-dir=private x src": policy.Allow, "grep -rn --exclude-dir='p*' x src": policy.AskPerson, "grep -rn --include='*.go' x src": policy.Allow,
		"grep -rn --include='*.key' x deploy": policy.AskPerson, "grep -rn --include='*.go' x deploy": policy.Allow, "grep -rn --exclude=x --include='*.go' x deploy": policy.AskPerson,
		"grep -r x deploy": policy.AskPerson, "grep -R --include='*' --exclude-dir=src x away": policy.AskPerson, "grep -r x away": policy.Allow, "grep -r x .git": policy.Allow,
		"cd src && grep -r x .": policy.AskPerson, "cd docs; grep -r x .": policy.AskPerson, "cd docs && grep -r x .": policy.Allow, "ls -R src": policy.Allow, "find src -name b": policy.Allow,
		"rg x": policy.AskPerson, "rg x src": policy.AskPerson, "rg -uu x docs": policy.Allow, "rg x docs": policy.Allow, "rg --files": policy.Allow, "cat docs/a.md | rg x": policy.Allow,
		"rg x .hidden": policy.AskPerson, "rg -e x docs src/a.go": policy.Allow,
		"diff -r src docs": policy.AskPerson, "diff docs deploy": policy.AskPerson, "diff docs/a.md src/a.go": policy.Allow, "diff --from-file=src docs": policy.AskPerson,
		"cp -r src new": policy.AskPerson, "cp -a deploy new": policy.AskPerson, "cp -r docs new": policy.Allow, "cp docs/a.md new": policy.Allow, "mv src new": policy.AskPerson, "mv deploy new": policy.Allow,
		"tar czf a.tgz src": policy.AskPerson, "tar -c -f a.tar docs": policy.Allow, "zip -r a.zip deploy": policy.AskPerson, "zip -qr a.zip docs": policy.Allow,
		"rm -r src": policy.AskPerson, "rm -rf deploy": policy.Allow,
	} {
		if v := policy.Evaluate(rules, withFiles(bash(command), files...)); v.Action != want {
			t.Errorf("%s: %s: %s", command, v.Action, v.Reason)
		}
	}
}

func TestACommandThatAnotherStartsReadsTreesToo(t *testing.T) {
	t.Parallel()
	rules := append([]policy.Rule{{Permission: "bash", Pattern: "uv run grep*"},
		{Permission: "bash", Pattern: "uv run git diff*"}}, policy.Defaults...)
	for _, command := range []string{"uv run grep -rn x .", "uv run git diff"} {
		a := withFiles(bash(command), ".git/config", ".env", "src/a.go")
		a.Tracked = func(string) ([]string, bool) { return []string{"/workspace/.env"}, true }
		if v := policy.Evaluate(rules, a); v.Action != policy.AskPerson {
			t.Errorf("%s: %s: %s", command, v.Action, v.Reason)
		}
		a = withFiles(bash(command), ".git/config", "src/a.go")
		a.Tracked = func(string) ([]string, bool) { return []string{"/workspace/src/a.go"}, true }
		if v := policy.Evaluate(rules, a); v.Action != policy.Allow {
			t.Errorf("%s without secrets: %s: %s", command, v.Action, v.Reason)
		}
	}
}

func TestRipgrepSkipsHiddenNames(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]policy.Action{
		"rg x": policy.Allow, "rg x .": policy.Allow, "rg --hidden x": policy.AskPerson, "rg -. x": policy.AskPerson, "rg -uu x": policy.AskPerson, "rg -uuu x": policy.AskPerson,
		"rg --unrestricted --unrestricted x": policy.AskPerson, "grep -r x": policy.AskPerson,
		"rg -g .env x": policy.AskPerson, "rg -g'.e*' x": policy.AskPerson, "rg --glob '**/.env' x": policy.AskPerson, "rg --glob='.[e]nv' x": policy.AskPerson, "rg --iglob .ENV x": policy.AskPerson,
		"rg -g '*.{go,env}' x": policy.AskPerson, "rg -g '*.{go,md}' x": policy.Allow, "rg -g '*.go' x": policy.Allow, "rg -g '!.env' x": policy.Allow, "rg -g '*.go' -g .env x": policy.AskPerson,
		"rg -tsh x": policy.AskPerson, "rg -tgo x": policy.Allow, "rg --type-add 'go:.env' -tgo x": policy.AskPerson, "rg -g '!a' -g '*' x": policy.AskPerson, "rg --files -g .env": policy.Allow,
	} {
		if v := policy.Evaluate(policy.Defaults, withFiles(bash(command), ".env", "src/a.go")); v.Action != want {
			t.Errorf("%s: %s: %s", command, v.Action, v.Reason)
		}
	}
}

func TestGitAsksForWhatItTracks(t *testing.T) {
	t.Parallel()
	rules := append([]policy.Rule{{Permission: "read", Pattern: "src/private/**", Action: policy.Deny}},
		policy.Defaults...)
	ask := func(command string, tracked ...string) policy.Input {
		a := withFiles(bash(command), ".env", "src/a.go", "src/private/b")
		a.Tracked = func(string) ([]string, bool) { return tracked, tracked != nil }
		return a
	}
	const kept, plain, secret = "/workspace/src/private/b", "/workspace/src/a.go", "/workspace/deploy/server.key"
	for command, want := range map[string]policy.Action{
		"git show HEAD": policy.AskPerson, "git show": policy.AskPerson, "git diff": policy.AskPerson, "git diff HEAD~1": policy.AskPerson, "git diff --stat": policy.Allow,
		"git diff --stat -p": policy.AskPerson, "git log": policy.Allow, "git log --oneline -5": policy.Allow, "git log -p": policy.AskPerson, "git log -U3": policy.AskPerson,
		"git log --stat": policy.Allow, "git stash list -p": policy.AskPerson, "git stash list": policy.Allow, "git grep x": policy.AskPerson, "git status": policy.Allow,
		"git status -v": policy.AskPerson, "git show --stat HEAD": policy.Allow, "git show HEAD:src/a.go": policy.Allow, "git show HEAD:src/private/b": policy.AskPerson,
		"git show HEAD:src/a.go HEAD": policy.AskPerson, "git diff -- docs": policy.Allow, "git diff -- src": policy.AskPerson, "git diff -- src/a.go": policy.Allow,
		"git show -s HEAD": policy.Allow, "git show -s 607d48e6": policy.AskPerson, "git show --stat 607D^{}": policy.AskPerson, "git show --name-only v1-1-g607d48e6": policy.AskPerson,
		"git diff -- ':(top)src'": policy.AskPerson, "git diff -- 's*'": policy.AskPerson, "git log -p -- src/a.go": policy.Allow, "git blame src/a.go": policy.Allow,
		"git blame src/private/b": policy.AskPerson, "cd src && git diff -- private": policy.AskPerson, "cd src && git diff -- a.go": policy.Allow, "git grep --untracked x": policy.AskPerson,
	} {
		if v := policy.Evaluate(rules, ask(command, plain, kept)); v.Action != want {
			t.Errorf("%s: %s: %s", command, v.Action, v.Reason)
		}
	}
	for command, c := range map[string]struct {
		tracked []string
		want    policy.Action
	}{
		"git diff":               {[]string{plain}, policy.Allow},
		"git diff HEAD":          {[]string{plain, secret}, policy.AskPerson},
		"git grep -- x":          {[]string{plain, secret}, policy.AskPerson}, // x is the pattern
		"git grep -e a -- x":     {[]string{plain, secret}, policy.Allow},
		"git log -p":             {nil, policy.AskPerson}, // all files count: .env is one
		"git grep --untracked x": {[]string{plain}, policy.AskPerson},
		"git diff --no-index a":  {[]string{plain}, policy.AskPerson},
	} {
		if v := policy.Evaluate(policy.Defaults, ask(command, c.tracked...)); v.Action != c.want {
			t.Errorf("%s with %q: %s: %s", command, c.tracked, v.Action, v.Reason)
		}
	}
}

func TestGitAsksInAnotherRepositoryThanTheWorkspaces(t *testing.T) {
	t.Parallel()
	tracked := []string{"/workspace/a.go", "/workspace/sub/mod/"}
	ask := func(command string, known bool, files ...string) policy.Verdict {
		a := withFiles(bash(command), append(files, ".git/config", "a.go", "sub/a.go")...)
		a.Tracked = func(string) ([]string, bool) { return tracked, known }
		return policy.Evaluate(policy.Defaults, a)
	}
	for command, want := range map[string]policy.Action{
		"git status": policy.Allow, "git diff --stat": policy.Allow, "cd sub && git status": policy.Allow, "cd sub && git log --oneline": policy.Allow,
		"cd vendor && git status": policy.AskPerson, "cd vendor/x && git diff --stat": policy.AskPerson, "cd vendor && git blame f": policy.AskPerson,
		"cd vendor && git log --oneline": policy.AskPerson,
	} {
		if v := ask(command, true, "vendor/.git/config", "vendor/x/f"); v.Action != want {
			t.Errorf("%s: %s: %s", command, v.Action, v.Reason)
		}
	}
	for command, want := range map[string]policy.Action{
		"git status": policy.AskPerson, "git diff --stat": policy.AskPerson, "git log --oneline": policy.Allow,
		"git status --ignore-submodules": policy.Allow, "git diff --stat --ignore-submodules=dirty": policy.Allow, "git status --ignore-submodules=none": policy.AskPerson,
	} {
		if v := ask(command, true, "sub/mod/.git/config"); v.Action != want {
			t.Errorf("%s with a submodule: %s: %s", command, v.Action, v.Reason)
		}
		if v := ask(command, false); v.Action != want {
			t.Errorf("%s with an index that cannot be read: %s: %s", command, v.Action, v.Reason)
		}
	}
}

func TestGitAsksWhenItsConfigurationNamesPrograms(t *testing.T) {
	t.Parallel()
	for _, runs := range []bool{false, true} {
		a := withFiles(bash("cd sub && git status"), ".git/config", "sub/a.go")
		list := a.List
		a.List = func(folder string, most int) ([]files.Entry, bool) {
			entries, ok := list(folder, most)
			for i := range entries {
				entries[i].Runs = runs && entries[i].Name == ".git"
			}
			return entries, ok
		}
		want := map[bool]policy.Action{false: policy.Allow, true: policy.AskPerson}[runs]
		if v := policy.Evaluate(policy.Defaults, a); v.Action != want {
			t.Errorf("programs %t: %s: %s", runs, v.Action, v.Reason)
		}
	}
}

func TestGitAsksBeforeItShowsURLsWithSecrets(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]policy.Action{
		"git remote -v": policy.AskPerson, "git remote --verbose": policy.AskPerson, "git remote get-url origin": policy.AskPerson, "cd sub && git --no-pager remote -v": policy.AskPerson,
		"git ls-remote origin": policy.AskPerson, "git remote": policy.Allow, "git status": policy.Allow,
	} {
		for _, secrets := range []bool{true, false} {
			a := withFiles(bash(command), ".git/config", "sub/a.go")
			a.Tracked = func(string) ([]string, bool) { return nil, true }
			list := a.List
			a.List = func(folder string, most int) ([]files.Entry, bool) {
				entries, ok := list(folder, most)
				for i := range entries {
					entries[i].Secret = secrets && entries[i].Name == ".git"
				}
				return entries, ok
			}
			if !secrets {
				want = policy.Allow
			}
			rules := append([]policy.Rule{{Permission: "bash", Pattern: "git ls-remote*"}}, policy.Defaults...)
			if v := policy.Evaluate(rules, a); v.Action != want {
				t.Errorf("%s, secrets %t: %s: %s", command, secrets, v.Action, v.Reason)
			}
		}
	}
}

func TestATreeThatIsTooLargeToLookThroughIsAsked(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 20_001 {
		names = append(names, fmt.Sprint("many/", i))
	}
	v := policy.Evaluate(policy.Defaults, withFiles(bash("grep -r x many"), names...))
	if v.Action != policy.AskPerson || !strings.Contains(v.Reason, "more than 20000 files") {
		t.Errorf("%s: %s", v.Action, v.Reason)
	}
	if v := policy.Evaluate(policy.Defaults, withFiles(bash("grep -r x many"), names[1:]...)); v.Action != policy.Allow {
		t.Errorf("%s: %s", v.Action, v.Reason)
	}
}

// ripgrep reads a hidden folder that an ignore file shows, and everything in it that is not hidden.
func TestRipgrepReadsHiddenFoldersThatAnIgnoreFileShows(t *testing.T) {
	t.Parallel()
	rules := append([]policy.Rule{{Permission: "read", Pattern: ".private/**", Action: policy.Deny}}, policy.Defaults...)
	for text, want := range map[string]policy.Action{
		"!.secrets": policy.AskPerson, "!.SECRETS/": policy.AskPerson, "!.private": policy.AskPerson, "!*": policy.AskPerson, "!.gitkeep": policy.Allow, "!.env.example": policy.Allow, ".secrets": policy.Allow,
	} {
		a := withFiles(bash("rg x"), ".secrets/prod.key", ".private/a", ".env", "a.go", ".ignore")
		list := a.List
		a.List = func(folder string, most int) ([]files.Entry, bool) {
			entries, ok := list(folder, most)
			for i := range entries {
				if entries[i].Name == ".ignore" {
					entries[i].Shows = program.ShownNames(text)
				}
			}
			return entries, ok
		}
		if v := policy.Evaluate(rules, a); v.Action != want {
			t.Errorf("%q: %s: %s", text, v.Action, v.Reason)
		}
	}
}

// A word that begins with ":" may be a pathspec with magic, which git reads from the top of the repository.
func TestGitAsksForPathspecMagic(t *testing.T) {
	t.Parallel()
	tracked := []string{"/workspace/src/a.go", "/workspace/sub/b"}
	for command, want := range map[string]policy.Action{
		"cd sub && git grep --untracked --no-exclude-standard -e x -- ':(top)'": policy.AskPerson, "git grep x -- ':/'": policy.AskPerson, "git grep x :/": policy.AskPerson,
		"git diff -- ':!a'": policy.AskPerson, "git log ':(icase).ENV'": policy.AskPerson, "git ls-files -- ':^x'": policy.AskPerson, "git status ':(glob)**'": policy.AskPerson,
		"git show :/fix": policy.AskPerson, "git show -- :src/a.go": policy.AskPerson, "git diff ::x": policy.AskPerson, "git show :src/a.go": policy.Allow, "git show :2:src/a.go": policy.Allow,
		"git blame -- ':(top)src/a.go'": policy.AskPerson, "git log -- src/a.go": policy.Allow,
		"git diff --no-index --name-only src .": policy.AskPerson, "cd sub && git grep --untracked x -- '../*'": policy.AskPerson, "cd sub && git grep --no-index x '../.[e]nv'": policy.AskPerson, "cd sub && git grep --untracked 'x.*' b": policy.Allow,
		"git diff ../other": policy.AskPerson, "cd sub && git diff ../conf ../src": policy.AskPerson, "cd sub && git diff /workspace/conf": policy.AskPerson, "cd sub && git diff ../src": policy.Allow,
	} {
		a := withFiles(bash(command), ".env", "src/a.go", "sub/b", "conf/.env")
		a.Tracked = func(string) ([]string, bool) { return tracked, true }
		if v := policy.Evaluate(policy.Defaults, a); v.Action != want {
			t.Errorf("%s: %s: %s", command, v.Action, v.Reason)
		}
	}
}

// Revisions hold files that git no longer tracks. What shows them is asked, unless it names tracked files behind --.
func TestGitAsksForTheContentOfRevisions(t *testing.T) {
	t.Parallel()
	tracked := []string{"/workspace/src/a.go", "/workspace/b"}
	for command, want := range map[string]policy.Action{
		"git log -p": policy.AskPerson, "git show": policy.AskPerson, "git show HEAD": policy.AskPerson, "git log -p -- '.e*'": policy.AskPerson, "git log -p -- old": policy.AskPerson,
		"git log -p -- src": policy.AskPerson, "git show stash@{0}^3": policy.AskPerson, "git diff HEAD": policy.AskPerson, "git diff HEAD~1 HEAD": policy.AskPerson, "git diff --cached": policy.AskPerson,
		"git diff --staged -- src": policy.AskPerson, "git diff main...HEAD -- src": policy.AskPerson, "git stash list -p": policy.AskPerson, "git stash list -p -- src/a.go": policy.AskPerson,
		"git status -v": policy.AskPerson, "git grep x HEAD~1": policy.AskPerson, "git grep --cached x": policy.Allow, "git log -p --follow -- src/a.go": policy.AskPerson, "git log -p -- src/a.go old": policy.AskPerson,
		"git log -L1,3:src/a.go": policy.AskPerson, "git diff --merge-base main": policy.AskPerson,
		"git log -p -- src/a.go": policy.Allow, "git show HEAD -- src/a.go": policy.Allow, "git diff HEAD -- src/a.go": policy.Allow,
		// b may have been a folder in a revision
		"git show HEAD -- src/a.go b": policy.AskPerson, "git diff HEAD -- b": policy.AskPerson, "git log -p -- b": policy.AskPerson, "git diff -- b": policy.Allow,
		"git log --oneline -S x": policy.AskPerson, "git log --oneline -G'^API_KEY=z'": policy.AskPerson, "git diff --name-only -Gx HEAD": policy.AskPerson, "git log --oneline -Gx -- src/a.go": policy.Allow, "git diff": policy.Allow, "git diff src": policy.Allow, "git diff -- src": policy.Allow,
		"git diff src/a.go b": policy.Allow, "git diff --stat HEAD~3": policy.Allow, "git grep x src": policy.Allow, "git grep -e x src/a.go b": policy.Allow, "git grep x -- src": policy.Allow, "git status": policy.Allow,
		"cd src && git log -p -- a.go": policy.Allow, "git log --stat": policy.Allow, "git show HEAD:src/a.go": policy.Allow,
	} {
		a := withFiles(bash(command), "src/a.go", "b")
		a.Tracked = func(string) ([]string, bool) { return tracked, true }
		if v := policy.Evaluate(policy.Defaults, a); v.Action != want {
			t.Errorf("%s: %s: %s", command, v.Action, v.Reason)
		}
	}
}

func TestCdGoesNoWhereThatIsNotRead(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]policy.Action{
		"cd sub && cd -- - && cat notes": policy.AskPerson, "cd sub && cd -P -- - && cat b": policy.AskPerson, "cd - && ls": policy.AskPerson, "cd -- -x && ls": policy.AskPerson, "cd '' && ls": policy.AskPerson,
		"cd -- '' && ls": policy.AskPerson, "cd && ls": policy.AskPerson, "cd -- && ls": policy.AskPerson, "cd -e sub && ls": policy.AskPerson, "cd -Pe sub && ls": policy.AskPerson, "cd -@ sub": policy.AskPerson,
		"cd sub docs && ls": policy.AskPerson, "cd '~-' && ls": policy.AskPerson, "cd ~1 && ls": policy.AskPerson, "cd ~+ && ls": policy.AskPerson, "cd +1 && ls": policy.Allow, "cd -0": policy.AskPerson, "cd -L - && ls": policy.AskPerson,
		"cd -- sub && ls": policy.Allow, "cd -P sub && ls": policy.Allow, "cd -L -- sub && ls": policy.Allow, "pushd sub && ls": policy.AskPerson,
	} {
		if v := policy.Evaluate(policy.Defaults, withFiles(bash(command), "sub/b", "docs/a",
			"notes -> /workspace/.env")); v.Action != want {
			t.Errorf("%s: %s: %s", command, v.Action, v.Reason)
		}
	}
}

func TestGitBlameReadsTheFileBehindAbbrev(t *testing.T) {
	t.Parallel()
	if v := policy.Evaluate(policy.Defaults, bash("git blame --abbrev .env")); v.Action != policy.AskPerson {
		t.Errorf("%s: %s", v.Action, v.Reason)
	}
}

func TestJqShowsNoEnvironment(t *testing.T) {
	t.Parallel()
	for _, filter := range []string{"{$ENV}", "{a: 1, $ENV}", "{$ ENV}", "$ENV", "env"} {
		if v := policy.Evaluate(policy.Defaults, bash("jq -n '"+filter+"'")); v.Action != policy.AskPerson {
			t.Errorf("%s: %s: %s", filter, v.Action, v.Reason)
		}
	}
	if v := policy.Evaluate(policy.Defaults, bash("jq '.a as $x | {$x, env, b: 1}'")); v.Action != policy.Allow {
		t.Errorf("%s: %s", v.Action, v.Reason)
	}
}
