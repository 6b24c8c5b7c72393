package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/policy/files"
)

// repository makes a git repository with these files, all added to its index.
func repository(t *testing.T, files ...string) (dir string) {
	t.Helper()
	is := is.New(t)
	dir, ok := RealPath(t.TempDir())
	is.True(ok)
	git(t, dir, "init", "-q")
	for _, name := range files {
		path := filepath.Join(dir, name)
		is.NoErr(os.MkdirAll(filepath.Dir(path), 0o700))
		is.NoErr(os.WriteFile(path, []byte("text\n"), 0o600))
		git(t, dir, "add", "-f", name)
	}
	return dir
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git",
		append([]string{"-c", "core.hooksPath=/dev/null", "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestTrackedFilesAreThoseOfTheIndex(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	files := []string{"a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh", "sub/größe b", "sub/deep/.env"}
	dir := repository(t, files...)
	is.NoErr(os.WriteFile(filepath.Join(dir, "untracked"), nil, 0o600))
	var want []string
	for _, name := range files {
		want = append(want, filepath.Join(dir, name))
	}
	for _, from := range []string{dir, filepath.Join(dir, "sub/deep")} {
		got, ok := TrackedFiles(from)
		is.True(ok)
		slices.Sort(got)
		slices.Sort(want)
		is.Equal(got, want)
	}

	git(t, dir, "commit", "-q", "-m", "x")
	git(t, dir, "add", "-N", "untracked") // needs version 3
	got, ok := TrackedFiles(dir)
	is.True(ok)
	is.Equal(len(got), len(files)+1)

	git(t, dir, "worktree", "add", "-q", "../tree")
	tree := filepath.Join(filepath.Dir(dir), "tree")
	got, ok = TrackedFiles(tree)
	is.True(ok)
	is.True(slices.Contains(got, filepath.Join(tree, "sub/deep/.env")))

	git(t, dir, "update-index", "--split-index")
	_, ok = TrackedFiles(dir)
	is.True(!ok) // a part of it lies elsewhere
	git(t, dir, "update-index", "--no-split-index", "--index-version", "4")
	_, ok = TrackedFiles(dir)
	is.True(!ok) // names are compressed

	_, ok = TrackedFiles("/")
	is.True(!ok) // no repository

	dir = repository(t, "a")
	git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",sub/mod")
	got, ok = TrackedFiles(dir)
	is.True(ok)
	is.Equal(got, []string{filepath.Join(dir, "a"), filepath.Join(dir, "sub/mod") + "/"})

	dir = repository(t, ".env", "sub/a")
	nested := filepath.Join(dir, "sub/.git")
	is.NoErr(os.Mkdir(nested, 0o700))
	is.NoErr(os.WriteFile(filepath.Join(nested, "index"), slices.Concat([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00"),
		make([]byte, 20)), 0o600))
	_, ok = TrackedFiles(filepath.Join(dir, "sub"))
	is.True(!ok) // git takes no such folder for a repository, and reads the one above
	is.NoErr(os.MkdirAll(filepath.Join(nested, "objects"), 0o700))
	is.NoErr(os.MkdirAll(filepath.Join(nested, "refs"), 0o700))
	for head, want := range map[string]bool{"": false, "x\n": false, "ref: x\n": false, "ref: refs/heads/main\n": true,
		strings.Repeat("a", 40) + "\n": true, strings.Repeat("a", 39) + "\n": false} {
		is.NoErr(os.WriteFile(filepath.Join(nested, "HEAD"), []byte(head), 0o600))
		names, ok := TrackedFiles(filepath.Join(dir, "sub"))
		is.Equal(ok, want) // whether git accepts HEAD
		is.Equal(len(names), 0)
	}
	is.NoErr(os.WriteFile(filepath.Join(nested, "HEAD"), []byte("ref: refs/heads/main\n"), 0o600))
	for config, want := range map[string]bool{"[core]\n\tbare = false\n": true, "[core]\n\tworkTree = ..\n": false,
		"[include]\n\tpath = x\n": false} {
		is.NoErr(os.WriteFile(filepath.Join(nested, "config"), []byte(config), 0o600))
		_, ok := TrackedFiles(filepath.Join(dir, "sub"))
		is.Equal(ok, want) // whether its files are those of the folder around it
	}
	for n := range 200 {
		if _, ok := indexNames(slices.Concat([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x01"), make([]byte, n))); ok {
			t.Errorf("%d bytes are no index", n)
		}
	}
}

func TestARepositoryThatNamesProgramsIsNoticed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	runs := func(folder string) bool {
		entries, ok := ListFolder(folder, 100)
		is.True(ok)
		return entries[slices.IndexFunc(entries, func(e files.Entry) bool { return e.Name == ".git" })].Runs
	}
	write := func(path, text string) {
		is.NoErr(os.MkdirAll(filepath.Dir(path), 0o700))
		is.NoErr(os.WriteFile(path, []byte(text), 0o600))
	}
	dir := repository(t, "a")
	git(t, dir, "remote", "add", "origin", "https://example.org/a.git")
	git(t, dir, "config", "branch.main.remote", "origin")
	config := filepath.Join(dir, ".git/config")
	ordinary, err := os.ReadFile(config)
	is.NoErr(err)
	is.True(!runs(dir))
	for _, text := range []string{"[core]\n\tfsmonitor = x", "[core]FsMonitor=x", "[filter \"x\"]\n\tclean = x",
		"[diff]\n\texternal = x", "[diff \"a\"]\n\tcommand = x",
		"[diff \"a\"]\n\ttextconv = x", "[include]\n\tpath = x", "[includeIf \"gitdir:/\"]\n\tpath = x",
		"[extensions]\n\tworktreeConfig = true", "[log]\n\tshowSignature = true",
		"[gpg]\n\tprogram = x", "[format]\n\tpretty = format:%G?", "[core]\n\thooksPath = x",
		"[extensions]\n\tpartialClone = origin",
		"[remote \"origin\"]\n\tuploadpack = x", "[remote \"origin\"]\n\turl = a\\\n\tuploadpack = x",
		"[user]\n\tname = a\n[core \"x\"] fsmonitor = x", "\ufeff[core]\n\tfsmonitor = x"} {
		is.NoErr(os.WriteFile(config, append(slices.Clone(ordinary), "\n"+text...), 0o600))
		is.True(runs(dir)) // the configuration names a program
	}
	is.NoErr(os.WriteFile(config, ordinary, 0o600))
	for _, name := range []string{"hooks/post-index-change", "commondir", "config.worktree"} {
		file := filepath.Join(dir, ".git", name)
		write(file, "x")
		is.True(runs(dir)) // a hook, or a configuration elsewhere
		is.NoErr(os.Remove(file))
	}
	is.True(!runs(dir))

	git(t, dir, "commit", "-q", "-m", "x")
	git(t, dir, "worktree", "add", "-q", "../elsewhere")
	worktree := filepath.Join(filepath.Dir(dir), "elsewhere")
	is.True(!runs(worktree))
	is.NoErr(os.WriteFile(config, append(slices.Clone(ordinary), "\n[core]\n\tfsmonitor = x"...), 0o600))
	is.True(runs(worktree)) // which shares the configuration
	inside := t.TempDir()
	write(filepath.Join(inside, "data/config"), "[core]\n\tbare = false\n")
	for _, to := range []string{"data", "../" + filepath.Base(inside) + "/data", inside + "/data", "/proc/self/cwd/data"} {
		write(filepath.Join(inside, ".git"), "gitdir: "+to+"\n")
		is.True(runs(inside)) // it lies in the workspace, or may
	}
	write(filepath.Join(inside, ".git"), "x")
	is.True(runs(inside))
}

func TestATreeIsLookedThroughAsItIs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := repository(t, "src/a.go")
	ask := func(command string) policy.Action {
		a := policy.Input{Type: "bash", Command: command, Cwd: dir, Root: dir, Resolve: RealPath, List: ListFolder,
			Tracked: TrackedFiles}
		v := policy.Evaluate(policy.Defaults, a)
		t.Logf("%s: %s: %s", command, v.Action, v.Reason)
		return v.Action
	}
	is.Equal(ask("grep -r x ."), policy.Allow)
	git(t, dir, "remote", "add", "origin", "https://me:password@example.org/a.git")
	is.Equal(ask("grep -r x ."), policy.AskPerson) // the configuration holds a password
	is.Equal(ask("grep -r x src"), policy.Allow)
	is.Equal(ask("git remote -v"), policy.AskPerson)
	is.Equal(ask("git remote get-url origin"), policy.AskPerson)
	git(t, dir, "remote", "set-url", "origin", "https://example.org/a.git")
	is.Equal(ask("git remote -v"), policy.Allow)
	write := func(name, text string) {
		is.NoErr(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		is.NoErr(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write(".git/FETCH_HEAD", "0\t\tbranch 'key' of https://example.org/a\n")
	write(".git/modules/sub/config", "[remote \"origin\"]\n\turl = https://example.org/sub\n")
	is.Equal(ask("grep -r x ."), policy.Allow) // neither holds a secret
	for _, name := range []string{".git/FETCH_HEAD", ".git/modules/sub/config", ".git/worktrees/a/config.worktree"} {
		write(name, "\turl = https://token@example.org/sub\n")
		is.Equal(ask("grep -r x ."), policy.AskPerson)
		is.NoErr(os.Remove(filepath.Join(dir, name)))
	}
	is.NoErr(os.RemoveAll(filepath.Join(dir, ".git/worktrees")))

	is.NoErr(os.WriteFile(filepath.Join(dir, "src/.env"), nil, 0o600))
	is.Equal(ask("grep -r x src"), policy.AskPerson)
	is.Equal(ask("git diff"), policy.Allow) // not tracked
	is.Equal(ask("rg x src"), policy.Allow) // hidden
	is.NoErr(os.WriteFile(filepath.Join(dir, ".ignore"), []byte("!.env\n"), 0o600))
	is.Equal(ask("rg x src"), policy.AskPerson) // shown by an ignore file above
	is.Equal(ask("rg x"), policy.AskPerson)
	is.NoErr(os.Remove(filepath.Join(dir, ".ignore")))
	is.NoErr(os.MkdirAll(filepath.Join(dir, "lib/.secrets"), 0o700))
	is.NoErr(os.WriteFile(filepath.Join(dir, "lib/.secrets/prod.key"), nil, 0o600))
	is.Equal(ask("rg x lib"), policy.Allow)
	is.NoErr(os.WriteFile(filepath.Join(dir, "lib/.ignore"), []byte("!.secrets\n"), 0o600))
	is.Equal(ask("rg x lib"), policy.AskPerson)
	is.NoErr(os.RemoveAll(filepath.Join(dir, "lib")))
	git(t, dir, "add", "-f", "src/.env")
	is.Equal(ask("git grep -- x"), policy.AskPerson) // x is the pattern
	is.Equal(ask("git diff"), policy.AskPerson)
	is.Equal(ask("git show HEAD:src/a.go"), policy.Allow)

	is.NoErr(os.Symlink("/etc", filepath.Join(dir, "link")))
	is.NoErr(os.Mkdir(filepath.Join(dir, "docs"), 0o700))
	is.NoErr(os.Symlink("/etc", filepath.Join(dir, "docs/link")))
	is.Equal(ask("grep -r x docs"), policy.Allow)
	is.Equal(ask("grep -R x docs"), policy.AskPerson) // it follows links
	is.Equal(ask("diff docs src"), policy.AskPerson)
}
