package sandbox

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
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
		is := is.New(t)
		git := exec.Command("git", "init", "--quiet", "--template=", workspace)
		out, err := git.CombinedOutput()
		is.NoErr(err)
		is.Equal(string(out), "")
	}
}

// The errnos with which the kernel refuses access to masked, mounted or not granted files.
const refusals = "EROFS EACCES EBUSY EPERM EXDEV EISDIR EEXIST ENOTDIR ENOTEMPTY"

func TestIsolationPreventsCreatingProtectedFiles(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		j := newTestWorker(t, choice, repository(t))
		var escapes []escape
		for _, name := range append(protectedNames, protectedInGit...) {
			if name == "opencode.json" || name == "opencode.jsonc" { // protected where they exist
				continue
			}
			at := "%w/" + name
			escapes = append(escapes,
				escape{"create " + at, refusals, false}, escape{"mkdir " + at, refusals, false},
				escape{"symlink /tmp " + at, refusals, false},
				escape{"rename %w/file " + at, refusals, false}, escape{"rename %w/sub " + at, refusals, false},
				escape{"swap %w/sub " + at, refusals + " ENOENT", false},
				escape{"link %w/file " + at, refusals, false}, escape{"create " + at + "/inside", refusals + " ENOENT", false},
				escape{"remove " + at, refusals + " ENOENT", false}, escape{"rename " + at + " %w/sub/away", refusals + " ENOENT",
					false},
			)
		}
		j.run(t, escapes)
		j.release()
		is := is.New(t)
		is.Equal(j.entries(""), []string{".git", "file", "sub"}) // neither the attempted files nor the stubs are there
		is.Equal(j.entries(".git"), []string{"HEAD", "config", "objects", "refs"})
	})
}

func TestIsolationPreventsCreatingARepository(t *testing.T) {
	t.Parallel()
	repository(t)
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, nil)
		j.run(t, []escape{
			{"mkdir %w/.git", refusals, false}, {"create %w/.git", refusals, false}, {"create %w/.git/config", refusals + " ENOENT", false}, {"rename %w/sub %w/.git", refusals, false},
			// a bare one
			{"mkdir %w/refs/heads", refusals + " ENOENT", false}, {"rename %w/sub %w/refs", refusals, false}, {"create %w/commondir", refusals, false}, {"rename %w/file %w/commondir", refusals, false},
		})
		result, _, _ := run(t, j.Worker, "git init")
		is.True(result.ExitCode != 0)
		j.release()
		is.Equal(j.entries(""), []string{"file", "sub"})
	})
}

func TestIsolationPreventsMakingTheWorkspaceABareRepository(t *testing.T) {
	expect.Long(t, "runs some hundred commands")
	t.Parallel()
	repository(t)
	// what the person has in the workspace
	for _, taken := range [][]string{nil, {"refs"}, {"objects"}, {"refs", "objects"}} {
		for _, git := range []string{"none", "folder", "worktree"} { // what its .git is
			eachLevel(t, func(t *testing.T, choice isolation.Choice) {
				is := is.New(t)
				j := newTestWorker(t, choice, func(workspace string) {
					addGit(t, workspace, git)
					for _, name := range taken {
						is.NoErr(os.Mkdir(filepath.Join(workspace, name), 0o755))
					}
					is.NoErr(exec.Command("git", "init", "--quiet", "--bare", "--template=",
						filepath.Join(workspace, "sub", "evil.git")).Run())
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
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, func(workspace string) {
			is.NoErr(os.Mkdir(filepath.Join(workspace, "refs"), 0o755))
			is.NoErr(exec.Command("git", "init", "--quiet", "--bare", "--template=",
				filepath.Join(workspace, "sub", "evil.git")).Run())
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
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, func(workspace string) {
			repository(t)(workspace)
			for _, name := range []string{"refs/own", "config", "HEAD"} {
				is.NoErr(os.MkdirAll(filepath.Join(workspace, filepath.Dir(name)), 0o755))
				is.NoErr(os.WriteFile(filepath.Join(workspace, name), []byte("own"), 0o644))
			}
		})
		command := "echo new >refs/own; echo new >config; echo new >HEAD; cat refs/own config HEAD"
		want := "new\nnew\nnew\n"
		if j.mounts {
			command += "; git add -A && git commit -qm one && git status --short && git ls-files && rm -r refs && git checkout -q . && ls refs"
			want += "HEAD\nconfig\nfile\nrefs/own\nsub/file\nown\n"
		}
		out, result := j.sh(command)
		is.Equal([]any{result.ExitCode, out}, []any{0, want})
	})
}

// The workspace may be a folder of the person's repository, in which the person works while a command runs.
func TestCommandDoesNotDisturbTheUsersGit(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, func(workspace string) {
			repository(t)(filepath.Dir(workspace))
			git := exec.Command("sh", "-ec", "git add . && git -c user.name=n -c user.email=n@example.org commit -qm one")
			git.Dir = workspace
			out, err := git.CombinedOutput()
			is.NoErr(err)
			is.Equal(string(out), "")
		})
		if !j.mounts {
			return // there are no stubs
		}
		out, done := newLines(), make(chan wire.Result, 1)
		go func() {
			done <- j.Exec(t.Context(), j.request(j.program+" "+attemptName+" 'wait "+j.workspace+"/sub/go'"), out, io.Discard)
		}()
		is.Equal(out.next(t), "waiting")
		is.True(slices.Contains(j.entries(""), "AGENTS.md")) // the stubs are there
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
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, func(workspace string) {
			is.NoErr(os.WriteFile(filepath.Join(workspace, "AGENTS.md"), []byte("be kind"), 0o644))
			is.NoErr(os.Symlink("AGENTS.md", filepath.Join(workspace, "CLAUDE.md")))
		})
		out, result := j.sh("cat CLAUDE.md; echo evil > CLAUDE.md")
		is.True(result.ExitCode != 0)
		is.True(strings.HasPrefix(out, "be kind"))
	})
}

// OpenCode reads the first of AGENTS.md and CLAUDE.md that exists, also while a command runs.
func TestStubsDoNotHideInstructions(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, func(workspace string) {
			is.NoErr(os.WriteFile(filepath.Join(workspace, "CLAUDE.md"), []byte("be kind"), 0o644))
		})
		out, _ := j.sh("ls")
		expect.Contains(t, out, "CLAUDE.md")
		expect.Lacks(t, out, "AGENTS.md")
	})
}

func TestIsolationPreventsChangingProtectedFiles(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		j := newTestWorker(t, choice, func(workspace string) {
			is := is.New(t)
			repository(t)(workspace)
			for _, name := range []string{".mcp.json", ".npmrc", ".envrc", ".gitattributes", ".gitmodules",
				".claude/settings.json", ".git/hooks/pre-commit", ".vscode/tasks.json"} {
				is.NoErr(os.MkdirAll(filepath.Join(workspace, filepath.Dir(name)), 0o755))
				is.NoErr(os.WriteFile(filepath.Join(workspace, name), []byte("good"), 0o644))
			}
		})
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
		j.run(t, []escape{
			{"write %w/deep/.bare/config", refusals, false}, {"replace %w/deep/.bare/config", refusals, false}, {"mkdir %w/deep/.bare/hooks", refusals, false}, {"create %w/deep/.bare/commondir", refusals, false},
			{"rename %w/deep/.bare %w/sub/away", refusals, false}, {"rename %w/deep %w/sub/away", refusals, false}, {"swap %w/sub %w/deep", refusals, false}, {"write %w/.git", refusals, false},
		})
		if j.mounts {
			out, result := j.sh("git add file && git commit -qm one && git log --format=%s")
			is.Equal([]any{result.ExitCode, out}, []any{0, "one\n"})
		}
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
		if !j.mounts { // the link cannot be exchanged; what it leads to is an ordinary folder
			expect.Contains(t, refusals, j.try("remove " + j.workspace + "/.claude")[0])
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
		if !j.mounts {
			result, _, stderr := run(t, j.Worker, "echo >new")
			is.Equal(result.ExitCode, 1) // as its level says
			expect.Contains(t, stderr, "Permission denied")
			return
		}
		is.Equal(do("echo new >new; sed -i s/new/newer/ new; cat new; mkdir -p deep/er; rm -r new deep"), "newer\n")
		const git = "git -c user.name=n -c user.email=n@example.org "
		is.Equal(do(git+"add -A && "+git+"commit --quiet -m one && git status --short && git ls-files && git checkout --quiet -b other && git log --format=%s"), "file\nsub/copy\nsub/file\none\n")
		result, _, stderr := run(t, j.Worker, "git config user.name evil")
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
