package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/protected"
	"pocketcoder/sandbox/wire"
)

// protectedNames are names that the sandbox protects in every workspace, in its top directory and in .git.
var protectedNames = slices.DeleteFunc(slices.Concat(protected.Project, protected.Instructions),
	func(name string) bool { return name == ".git" })

var protectedInGit = []string{".git/config.worktree", ".git/commondir", ".git/hooks", ".git/info", ".git/modules",
	".git/worktrees", ".git/opencode"}

// repository makes the workspace a git repository with only the files that git needs.
func repository(t *testing.T) func(workspace string) {
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return func(workspace string) {
		expect.MakeRepository(t, workspace)
	}
}

// makeBareRepository makes a bare git repository with only the files that git needs.
func makeBareRepository(t *testing.T, dir string) {
	t.Helper()
	is := is.New(t)
	for _, d := range []string{"objects", "refs"} {
		is.NoErr(os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	expect.WriteFile(t, filepath.Join(dir, "HEAD"), "ref: refs/heads/main\n")
	expect.WriteFile(t, filepath.Join(dir, "config"), "[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
}

// The errnos with which the kernel refuses access to masked, mounted or not granted files.
const refusals = "EROFS EACCES EBUSY EPERM EXDEV EISDIR EEXIST ENOTDIR ENOTEMPTY"

// waysToCreate are attempts to give a name to a file.
func waysToCreate(at string) []string {
	return []string{"create " + at, "mkdir " + at, "symlink /tmp " + at, "rename %w/file " + at, "rename %w/sub " + at,
		"swap %w/sub " + at, "link %w/file " + at, "create " + at + "/inside", "remove " + at, "rename " + at + " %w/sub/away"}
}

func TestIsolationPreventsCreatingProtectedFilesInGit(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, repository(t))
		if j.mounts {
			var escapes []escape
			for _, name := range protectedInGit {
				for _, attempt := range waysToCreate("%w/" + name) {
					escapes = append(escapes, escape{attempt, refusals + " ENOENT", false})
				}
			}
			j.run(t, escapes)
		} else {
			for _, name := range protectedInGit {
				j.sh("mkdir -p " + name + "/deep")
				j.sh("echo evil >sub/a; mv sub/a " + name)
			}
		}
		j.release()
		is.Equal(j.entries(""), []string{".git", "file", "sub"}) // neither the attempted files nor the placeholders are there
		is.Equal(j.entries(".git"), []string{"HEAD", "config", "objects", "refs"})
	})
}

func TestIsolationTakesAllProtectedNamesOutOfTheTopDirectory(t *testing.T) {
	t.Parallel()
	eachProtection(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, repository(t))
		ways := []string{"mkdir %s", "ln -st . %s", "cd sub; touch %s; mv %s .. || :"}
		// mv fails if the worker moves a name away before mv has finished. Each command creates 15 names, because the
		// worker stops a command that creates more than 16.
		fives := slices.Collect(slices.Chunk(append(slices.Clone(protectedNames), "commondir"), 5))
		for some := range slices.Chunk(fives, len(ways)) {
			script := "set -e\n"
			for i, names := range some {
				script += strings.ReplaceAll(ways[i], "%s", strings.Join(names, " ")) + "\n"
			}
			out, result := j.sh(script)
			is.Equal([]any{result.Reason, result.ExitCode}, []any{wire.Exited, 0})
			for _, name := range slices.Concat(some...) {
				expect.Contains(t, out, "pocketcoder: "+name+" was moved out of the workspace")
			}
			is.Equal(j.entries(""), []string{".git", "file", "sub"})
		}
	})
}

func TestIsolationPreventsCreatingARepository(t *testing.T) {
	t.Parallel()
	repository(t)
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, nil)
		for _, command := range []string{"mkdir .git", "echo gitdir: sub > .git", "mkdir sub/g; mv sub/g .git", "git init",
			"git init --bare .", "echo sub > commondir"} {
			out, result := j.sh(command)
			is.Equal(len(result.Quarantined), 0) // a person is not asked
			expect.Contains(t, out, "was moved out of the workspace and cannot be kept: a command cannot")
			is.Equal(gitDirectory(t, j), "")
		}
		is.True(!slices.Contains(j.entries(""), ".git"))
	})
}

func TestIsolationPreventsMakingTheWorkspaceABareRepository(t *testing.T) {
	expect.Long(t, "runs some hundred commands")
	t.Parallel()
	repository(t)
	for _, c := range []struct {
		taken []string // what the person has in the workspace
		git   string   // what its .git is
	}{
		{nil, "folder"}, {[]string{"objects"}, "worktree"}, {[]string{"refs", "objects"}, "none"},
	} {
		eachProtection(t, func(t *testing.T, choice isolation.Choice) {
			is := is.New(t)
			j := newTestWorker(t, choice, func(workspace string) {
				addGit(t, workspace, c.git)
				for _, name := range c.taken {
					is.NoErr(os.Mkdir(filepath.Join(workspace, name), 0o755))
				}
				makeBareRepository(t, filepath.Join(workspace, "sub", "evil.git"))
			})
			for _, command := range []string{
				"mv .git/HEAD .git/refs .git/objects sub; mv .git sub; rm -rf .git",
				"cp -r sub/evil.git/* .", "git init --bare .",
				"mkdir -p objects refs; cp sub/evil.git/HEAD sub/evil.git/config .", "mv sub/evil.git/* .",
				"echo sub/evil.git > commondir; cp sub/evil.git/HEAD .",
				"ln -s sub/evil.git/refs refs; ln -s sub/evil.git/objects objects; cp sub/evil.git/HEAD .",
			} {
				run(t, j.Worker, command)
			}
			j.release()
			is.True(gitDirectory(t, j) != ".")
		})
	}
}

// addGit adds to the workspace a folder .git, or the file .git of a linked worktree, or nothing.
func addGit(t *testing.T, workspace, kind string) {
	is := is.New(t)
	switch kind {
	case "folder":
		repository(t)(workspace)
	case "worktree":
		main := filepath.Join(filepath.Dir(workspace), "main")
		repository(t)(main)
		git := exec.Command("sh", "-ec", "git -c user.name=n -c user.email=n@example.org commit -q --allow-empty -m one; git worktree add -q ../linked; mv ../linked/.git "+workspace)
		git.Dir = main
		out, err := git.CombinedOutput()
		is.NoErr(err)
		is.Equal(string(out), "")
	}
}

// gitDirectory returns the directory that the user's git uses as the repository of the workspace: "." is the workspace
// itself. It is empty if there is none.
func gitDirectory(t *testing.T, j *testWorker) string {
	git := exec.Command("git", "-c", "safe.bareRepository=all", "rev-parse", "--git-dir")
	git.Dir, git.Env = j.workspace, []string{"PATH=" + os.Getenv("PATH"), "GIT_CEILING_DIRECTORIES=" + j.dir}
	out, err := git.CombinedOutput()
	if err != nil {
		expect.Contains(t, string(out), "not a git repository")
		return ""
	}
	return strings.TrimSpace(string(out))
}

// A command that started while the workspace held a folder refs can remove it. The next command must not use that.
func TestTwoCommandsCannotMakeABareRepository(t *testing.T) {
	t.Parallel()
	repository(t)
	eachProtection(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, func(workspace string) {
			is.NoErr(os.Mkdir(filepath.Join(workspace, "refs"), 0o755))
			makeBareRepository(t, filepath.Join(workspace, "sub", "evil.git"))
		})
		out, done := newLines(), make(chan wire.Result, 1)
		go func() {
			first := "rmdir refs; " + j.program + " " + attemptName + " 'wait sub/go'; rmdir refs; mkdir refs"
			done <- j.Exec(t.Context(), j.request(first), out, io.Discard)
		}()
		is.Equal(out.next(t), "waiting")
		run(t, j.Worker, "rmdir objects; mkdir objects; cp sub/evil.git/HEAD sub/evil.git/config .; rmdir commondir; echo > sub/go")
		is.Equal((<-done).Reason, wire.Exited)
		j.release()
		is.Equal(gitDirectory(t, j), "")
	})
}

func TestCommandsUseFoldersNamedLikeThoseOfARepository(t *testing.T) {
	t.Parallel()
	eachProtection(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, func(workspace string) {
			repository(t)(workspace)
			for _, name := range []string{"refs/own", "config", "HEAD"} {
				is.NoErr(os.MkdirAll(filepath.Join(workspace, filepath.Dir(name)), 0o755))
				is.NoErr(os.WriteFile(filepath.Join(workspace, name), []byte("own"), 0o644))
			}
		})
		command := "echo new >refs/own; echo new >config; echo new >HEAD; cat refs/own config HEAD" +
			"; git add -A && git commit -qm one && git status --short && git ls-files && rm -r refs && git checkout -q . && ls refs"
		want := "new\nnew\nnew\nHEAD\nconfig\nfile\nrefs/own\nsub/file\nown\n"
		out, result := j.sh(command)
		is.Equal([]any{result.ExitCode, out}, []any{0, want})
	})
}

// The workspace may be a folder of the person's repository, in which the person works while a command runs.
func TestCommandDoesNotDisturbTheUsersGit(t *testing.T) {
	t.Parallel()
	eachProtection(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, func(workspace string) {
			repository(t)(filepath.Dir(workspace))
			git := exec.Command("sh", "-ec", "git add . && git -c user.name=n -c user.email=n@example.org commit -qm one")
			git.Dir = workspace
			out, err := git.CombinedOutput()
			is.NoErr(err)
			is.Equal(string(out), "")
		})
		out, done := newLines(), make(chan wire.Result, 1)
		go func() {
			done <- j.Exec(t.Context(), j.request(j.program+" "+attemptName+" 'wait "+j.workspace+"/sub/go'"), out, io.Discard)
		}()
		is.Equal(out.next(t), "waiting")
		for _, args := range [][]string{{"diff", "HEAD"}, {"log", "HEAD"}, {"diff", "--exit-code"},
			{"status", "--porcelain", "."}} {
			git := exec.Command("git", args...)
			git.Dir = j.workspace
			output, err := git.CombinedOutput()
			if err != nil || args[0] == "status" && len(output) > 0 {
				t.Errorf("git %q: %v\n%s", args, err, output)
			}
		}
		is.NoErr(os.WriteFile(filepath.Join(j.workspace, "sub", "go"), nil, 0o644))
		is.Equal((<-done).Reason, wire.Exited)
	})
}

// A project often has one text for agents under two names.
func TestSymlinkedInstructionsStayUnchanged(t *testing.T) {
	t.Parallel()
	eachProtection(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, func(workspace string) {
			is.NoErr(os.WriteFile(filepath.Join(workspace, "AGENTS.md"), []byte("be kind"), 0o644))
			is.NoErr(os.Symlink("AGENTS.md", filepath.Join(workspace, "CLAUDE.md")))
		})
		out, result := j.sh("cat CLAUDE.md; echo evil > CLAUDE.md")
		is.True(result.ExitCode != 0 || !j.mounts)
		is.True(strings.HasPrefix(out, "be kind"))
		out, result = j.sh("echo evil > sub/a; mv sub/a CLAUDE.md")
		is.Equal([]any{result.Reason, result.ExitCode, len(result.Quarantined)}, []any{wire.Exited, 0, 0})
		expect.Contains(t, out, "pocketcoder: CLAUDE.md was put back: a command cannot change it")
		target, err := os.Readlink(filepath.Join(j.workspace, "CLAUDE.md"))
		is.NoErr(err)
		is.Equal(target, "AGENTS.md")
		text, err := os.ReadFile(filepath.Join(j.workspace, "AGENTS.md"))
		is.NoErr(err)
		is.Equal(string(text), "be kind")
	})
}

func TestIsolationPreventsChangingProtectedFiles(t *testing.T) {
	t.Parallel()
	eachProtection(t, func(t *testing.T, choice isolation.Choice) {
		j := newTestWorker(t, choice, func(workspace string) {
			is := is.New(t)
			repository(t)(workspace)
			for _, name := range []string{".mcp.json", ".npmrc", ".envrc", ".gitattributes", ".gitmodules",
				".claude/settings.json", ".git/hooks/pre-commit", ".vscode/tasks.json"} {
				is.NoErr(os.MkdirAll(filepath.Join(workspace, filepath.Dir(name)), 0o755))
				is.NoErr(os.WriteFile(filepath.Join(workspace, name), []byte("good"), 0o644))
			}
		})
		if !j.mounts {
			var escapes []escape // the worker refuses these itself
			for _, name := range []string{".mcp.json", ".git/config", ".git/hooks/pre-commit", ".git/hooks", ".claude"} {
				escapes = append(escapes, escape{"chmod %w/" + name, refusals, false},
					escape{"mode fchmod %w/" + name + " 0777", refusals, false})
			}
			j.run(t, escapes)
			j.undoes(".git/config", "overwrite %n", "replace %n", "rename %w/file %n", "swap %w/sub/file %n")
			j.undoes(".git/hooks/pre-commit", "overwrite %n", "replace %n", "rename %w/file %n", "remove %n")
			j.undoes(".git/hooks", "create %n/new", "mkdir %n/deep", "rename %n %w/sub/away", "swap %w/sub/folder %n")
			j.undoes(".mcp.json", "cut %n", "remove %n", "rename %n %w/sub/away")
			j.undoes(".claude/settings.json", "cut %n", "rename %w/sub/file %n", "rename %n %w/away",
				"swap %w/sub/folder %n")
			j.undoes(".claude", "create %n/new", "rename %n %w/away", "swap %w/sub/file %n")
			return
		}
		var escapes []escape
		for _, name := range []string{".mcp.json", ".npmrc", ".envrc", ".gitattributes", ".gitmodules", ".git/config",
			".claude/settings.json", ".git/hooks/pre-commit", ".vscode/tasks.json"} {
			at := "%w/" + name
			escapes = append(escapes, escape{"read " + at, "ok", false},
				escape{"write " + at, refusals, false}, escape{"cut " + at, refusals, false},
				escape{"replace " + at, refusals, false}, escape{"remove " + at, refusals, false},
				escape{"rename " + at + " %w/sub/away", refusals, false}, escape{"swap %w/sub/file " + at, refusals, false},
				escape{"link " + at + " %w/sub/alias", refusals, false}, escape{"rename %w/sub/file " + at, refusals, false},
			)
			escapes = append(escapes, escape{"chmod " + at, refusals, false},
				escape{"mode fchmod " + at + " 0777", refusals, false})
		}
		// the whole folder is replaced by another
		for _, folder := range []string{".git", ".git/hooks", ".claude", ".vscode"} {
			at := "%w/" + folder
			escapes = append(escapes, escape{"rename " + at + " %w/sub/away", refusals, false},
				escape{"rename " + at + " %w/away", refusals, false},
				escape{"swap %w/sub " + at, refusals, false}, escape{"remove " + at, refusals, false})
		}
		for _, folder := range []string{".git/hooks", ".claude", ".vscode"} {
			escapes = append(escapes, escape{"mode fchmod %w/" + folder + " 0777", refusals, false})
		}
		escapes = append(escapes, escape{"rename %w %w-away", refusals + " ENOENT", false},
			escape{"rename %w/file %w/.git/config", refusals, false})
		j.run(t, escapes)
	})
}

// undoes checks that the worker undoes each attempt to change a name of the workspace. In an attempt, %n is that name
// and %w is the workspace.
func (j *testWorker) undoes(name string, attempts ...string) {
	j.t.Helper()
	for _, attempt := range attempts {
		j.undoesOne(name, attempt)
	}
}

func (j *testWorker) undoesOne(name, attempt string) {
	j.t.Helper()
	is := is.New(j.t)
	path := filepath.Join(j.workspace, name)
	attempt = strings.NewReplacer("%n", path, "%w", j.workspace).Replace(attempt)
	_, err := os.Lstat(path)
	is.NoErr(err)
	before := j.state(name)
	is.NoErr(os.MkdirAll(filepath.Join(j.workspace, "sub", "folder"), 0o755))
	for _, file := range []string{"file", "sub/file"} {
		is.NoErr(os.WriteFile(filepath.Join(j.workspace, file), []byte("evil"), 0o644))
	}
	out, _ := j.sh(j.program + " " + attemptName + " '" + attempt + "'")
	result, _, _ := strings.Cut(out, "\n")
	// ENOENT: the worker has already removed the new file that replace has made beside a protected one.
	undone := strings.HasPrefix(attempt, "replace ") && result == "ENOENT"
	if result != "ok" && !undone {
		j.t.Fatalf("%s changes nothing: %s", attempt, out)
	}
	if now := j.state(name); now != before {
		j.t.Fatalf("after %s: %s\n%s, not %s", attempt, out, now, before)
	}
	is.NoErr(os.RemoveAll(filepath.Join(j.workspace, "away")))
	is.NoErr(os.RemoveAll(filepath.Join(j.workspace, "sub")))
}

// state lists a name of the workspace and all below it, with modes and contents, or why they cannot be read.
func (j *testWorker) state(name string) (state string) {
	filepath.WalkDir(filepath.Join(j.workspace, name), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			state += fmt.Sprintln(err)
			return nil
		}
		info, err := e.Info()
		if err != nil {
			state += fmt.Sprintln(err)
			return nil
		}
		state += fmt.Sprintln(info.Mode(), path)
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			state += fmt.Sprintln(string(text), err)
		}
		return nil
	})
	return state
}

// Such a .git is usual in a folder with several worktrees: the repository is in a folder .bare beside them.
func TestIsolationProtectsARepositoryThatAGitFileNames(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, func(workspace string) {
			is.NoErr(os.Mkdir(filepath.Join(workspace, "deep"), 0o755))
			is.NoErr(exec.Command("git", "init", "--quiet", "--template=", "--separate-git-dir",
				filepath.Join(workspace, "deep", ".bare"), workspace).Run())
		})
		if !j.mounts {
			j.undoes(".git", "overwrite %n", "replace %n", "remove %n", "rename %w/file %n", "chmod %n")
			j.undoes("deep/.bare/config", "overwrite %n", "replace %n", "remove %n", "rename %w/file %n")
			j.undoes("deep/.bare", "rename %n %w/sub/away", "rename %n %w/away", "swap %w/sub/folder %n")
			j.undoes("deep", "rename %n %w/sub/away", "swap %w/sub/file %n", "swap %w/sub/folder %n")
			out, result := j.sh("mkdir deep/.bare/hooks; echo x > deep/.bare/commondir; sleep 0.1; ls deep/.bare")
			is.Equal(result.ExitCode, 0)
			expect.Lacks(t, strings.Split(out, "pocketcoder")[0], "hooks")
			return
		}
		j.run(t, []escape{
			{"write %w/deep/.bare/config", refusals, false}, {"replace %w/deep/.bare/config", refusals, false}, {"mkdir %w/deep/.bare/hooks", refusals, false}, {"create %w/deep/.bare/commondir", refusals, false},
			{"rename %w/deep/.bare %w/sub/away", refusals, false}, {"rename %w/deep %w/sub/away", refusals, false}, {"swap %w/sub %w/deep", refusals, false}, {"write %w/.git", refusals, false},
		})
		out, result := j.sh("git add file && git commit -qm one && git log --format=%s")
		is.Equal([]any{result.ExitCode, out}, []any{0, "one\n"})
		j.release()
		is.True(!slices.Contains(j.entries("deep/.bare"), "commondir"))
	})
}

func TestIsolationDoesNotFollowProtectedSymlinks(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, func(workspace string) {
			is := is.New(t)
			is.NoErr(os.Mkdir(filepath.Join(workspace, "sub/claude"), 0o755))
			is.NoErr(os.Symlink("sub/claude", filepath.Join(workspace, ".claude")))
		})
		if !j.mounts { // what it leads to is an ordinary folder
			j.sh("rm .claude; mkdir .claude")
			target, err := os.Readlink(filepath.Join(j.workspace, ".claude"))
			is.NoErr(err)
			is.Equal(target, "sub/claude")
			return
		}
		result, _, _ := run(t, j.Worker, "true")
		is.Equal(result.Reason, wire.Refused)
		expect.Contains(t, result.Error, ".claude: it is a symbolic link")
	})
}

func TestIsolationAllowsOrdinaryWork(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, repository(t))
		do := func(command string) string {
			t.Helper()
			result, stdout, stderr := run(t, j.Worker, command)
			if result.ExitCode != 0 || stderr != "" {
				t.Fatalf("%s: %+v\n%s%s", command, result, stdout, stderr)
			}
			return stdout
		}
		is.Equal(do("cd sub; echo one >a; mkdir d; mv a d/b; ln d/b d/c; ln -s b d/l; cat d/l; chmod +x d/b; rm -r d"),
			"one\n")
		is.Equal(do("echo changed >file; cat file <(echo and) | tee sub/copy; echo nothing >/dev/null"), "changed\nand\n")
		is.Equal(do(`f=$(mktemp); echo temp >"$f"; cat "$f"; echo kept >~/cache; cat ~/cache; [ "$TMPDIR" ] && : >"$TMPDIR/x"`), "temp\nkept\n")
		is.Equal(do("(sleep 0.05; exit 3) & wait $!; echo $?; kill -0 $$; trap 'echo caught' USR1; kill -USR1 $$"),
			"3\ncaught\n")
		is.Equal(do("head -c 100000 /dev/urandom | wc -c; : >/dev/full 2>/dev/null || echo full; test -r /proc/self/status -a -r /etc/passwd"), "100000\n")
		is.Equal(do("echo new >new; sed -i s/new/newer/ new; cat new; mkdir -p deep/er; rm -r new deep"), "newer\n")
		const git = "git -c user.name=n -c user.email=n@example.org "
		is.Equal(do(git+"add -A && "+git+"commit --quiet -m one && git status --short && git ls-files && git checkout --quiet -b other && git log --format=%s"), "file\nsub/copy\nsub/file\none\n")
		result, _, stderr := run(t, j.Worker, "git config user.name evil")
		if !j.mounts {
			is.Equal(stderr, "pocketcoder: .git/config was put back: a command cannot change it\n")
			is.Equal(do("git config --local user.name || echo none"), "none\n")
			return
		}
		is.True(result.ExitCode != 0)
		is.True(strings.Contains(stderr, "could not lock config file") || strings.Contains(stderr, "busy") ||
			strings.Contains(stderr, "could not write"))
	})
}

func TestIsolationRejectsAReplacedWorkspace(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, nil)
		is.NoErr(os.Rename(j.workspace, j.workspace+"-moved"))
		refused := func(why string) {
			t.Helper()
			r := j.request("touch ran")
			result := j.Exec(t.Context(), r, os.Stdout, os.Stderr)
			is.Equal(result.Reason, wire.Refused)
			expect.Contains(t, result.Error, why)
		}
		refused("no such file")
		is.NoErr(os.Symlink(j.dir+"/other", j.workspace))
		refused("outside the workspace")
		is.NoErr(os.Remove(j.workspace))
		is.NoErr(os.Mkdir(j.workspace, 0o755))
		refused("is not the directory it was")
		for _, dir := range []string{j.workspace, j.dir + "/other"} {
			_, err := os.Stat(dir + "/ran")
			is.True(errors.Is(err, os.ErrNotExist))
		}
	})
}

func TestIsolationIsRequiredToRunCommands(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w, err := Open(Config{Workspace: t.TempDir(), Home: t.TempDir(), Isolation: isolation.Choice{Reason: "because"},
		Log: slog.New(slog.DiscardHandler)})
	is.NoErr(err)
	t.Cleanup(w.Close)
	result, _, _ := run(t, w, "true")
	is.Equal(result.Reason, wire.Refused)
	expect.Contains(t, result.Error, "no command is run without isolation: because")
}

// entries lists a folder of the workspace.
func (j *testWorker) entries(dir string) (names []string) {
	j.t.Helper()
	is := is.New(j.t)
	entries, err := os.ReadDir(filepath.Join(j.workspace, dir))
	is.NoErr(err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
