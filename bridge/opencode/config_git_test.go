package opencode

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/install"
	"pocketcoder/ops/expect"
)

// gitAsOpenCode runs git over the workspace as OpenCode's snapshots do, with the index in the supervisor's directory.
func (s *Supervisor) gitAsOpenCode(t *testing.T, more []string, args ...string) string {
	t.Helper()
	out, err := s.tryGitAsOpenCode(t, more, args...)
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return out
}

func (s *Supervisor) tryGitAsOpenCode(t *testing.T, more []string, args ...string) (string, error) {
	t.Helper()
	env, err := s.environment("the password", nil)
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"-c", `exec git "$@"`, "sh", "-c", "core.quotepath=false", "--git-dir", s.path("snapshot"),
		"--work-tree", s.Workspace}, args...)
	cmd := exec.Command("/bin/sh", args...)
	cmd.Dir, cmd.Env = s.Workspace, append(env, more...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// addNestedRepository creates a repository in a folder of the workspace. Its filter runs evil whenever git reads the
// content of file to find a change; git must read it because the size, four bytes, is unchanged.
func addNestedRepository(t *testing.T, folder, evil string) {
	t.Helper()
	gitOrSkip(t)
	expect.WriteFile(t, filepath.Join(folder, "file"), "one\n")
	cmd := exec.Command("sh", "-ec", `git init -q; git add file; git -c user.name=a -c user.email=a@b commit -qm one
git config filter.x.clean "$0"; echo '* filter=x' >.gitattributes; echo two >file`, evil)
	cmd.Dir, cmd.Env = folder, []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make a repository: %v\n%s", err, out)
	}
}

func gitOrSkip(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("git is missing")
	}
	t.Skip("git is missing")
}

func TestSnapshotsRunNoFilterOfANestedRepository(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := &Supervisor{Dir: t.TempDir(), Workspace: t.TempDir(), Tools: install.Tools{Ripgrep: "/tools/rg"},
		Isolation: unconfined}
	is.NoErr(s.prepare())
	is.NoErr(s.prepare()) // as at each start
	ran := filepath.Join(t.TempDir(), "ran")
	sub := filepath.Join(s.Workspace, "sub")
	addNestedRepository(t, sub, "touch "+ran+"; cat")
	expect.WriteFile(t, filepath.Join(s.Workspace, "a.txt"), "one\n")
	s.gitAsOpenCode(t, nil, "init", "-q")
	s.gitAsOpenCode(t, nil, "add", "--all")
	expect.WriteFile(t, filepath.Join(s.Workspace, "a.txt"), "other\n")
	expect.WriteFile(t, filepath.Join(sub, "file"), "six\n")
	is.Equal(s.gitAsOpenCode(t, nil, "diff-files", "--name-only"), "a.txt\n")
	s.gitAsOpenCode(t, nil, "add", "--all")
	s.gitAsOpenCode(t, nil, "gc", "--prune=now")
	tree := strings.TrimSpace(s.gitAsOpenCode(t, nil, "write-tree"))
	is.NoErr(os.Remove(filepath.Join(s.Workspace, "a.txt")))
	s.gitAsOpenCode(t, nil, "checkout", tree, "--", "a.txt")
	is.Equal(expect.ReadFile(t, filepath.Join(s.Workspace, "a.txt")), "other\n")
	_, err := os.Stat(ran)
	is.True(os.IsNotExist(err))
	// with the system's git on PATH
	s.gitAsOpenCode(t, []string{"GIT_EXEC_PATH=" + t.TempDir()}, "diff-files", "--name-only")
	_, err = os.Stat(ran)
	is.NoErr(err) // with git's own settings the program runs
}

func TestGitIgnoresABareRepositoryInTheWorkspace(t *testing.T) {
	t.Parallel()
	gitOrSkip(t)
	is := is.New(t)
	s := &Supervisor{Dir: t.TempDir(), Workspace: t.TempDir(), Tools: install.Tools{Ripgrep: "/tools/rg"},
		Isolation: unconfined}
	is.NoErr(s.prepare())
	evil := filepath.Join(s.Workspace, "evil")
	for name, text := range map[string]string{
		"HEAD": "ref: refs/heads/main\n", "objects/keep": "", "refs/keep": "",
		"config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n",
	} {
		is.NoErr(os.MkdirAll(filepath.Dir(filepath.Join(evil, name)), 0o755))
		expect.WriteFile(t, filepath.Join(evil, name), text)
	}
	status := func(env []string) (string, error) {
		cmd := exec.Command("git", "status")
		cmd.Dir, cmd.Env = evil, env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	env, err := s.environment("the password", nil)
	is.NoErr(err)
	out, err := status(env)
	is.True(err != nil)
	expect.Contains(t, out, "cannot use bare repository")
	out, err = status([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()})
	is.NoErr(err) // with git's own settings it is a repository
	expect.Contains(t, out, "No commits yet")
}

func TestSnapshotsDoNotNeedGitLFS(t *testing.T) {
	t.Parallel()
	gitOrSkip(t)
	is := is.New(t)
	s := &Supervisor{Dir: t.TempDir(), Workspace: t.TempDir(), Tools: install.Tools{Ripgrep: "/tools/rg"},
		Isolation: unconfined}
	is.NoErr(s.prepare())
	system := filepath.Join(t.TempDir(), "gitconfig")
	expect.WriteFile(t, system, "[filter \"lfs\"]\n\tprocess = false\n\tclean = false\n\tsmudge = false\n\trequired = true\n")
	expect.WriteFile(t, filepath.Join(s.Workspace, ".gitattributes"), "*.bin filter=lfs\n")
	expect.WriteFile(t, filepath.Join(s.Workspace, "a.bin"), "large\n")
	s.gitAsOpenCode(t, nil, "init", "-q")
	s.gitAsOpenCode(t, []string{"GIT_CONFIG_SYSTEM=" + system}, "add", "--all")
	is.Equal(s.gitAsOpenCode(t, nil, "show", ":a.bin"), "large\n")
}

// TestWaitingGitIsEnded lets git open a FIFO.
func TestWaitingGitIsEnded(t *testing.T) {
	t.Parallel()
	gitOrSkip(t)
	for name, c := range map[string]struct {
		command []string
		out     string
	}{
		".gitignore":     {[]string{"ls-files", "--others", "--exclude-standard"}, "sub/a.txt\n"},
		".gitattributes": {[]string{"add", "--all"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			var logged bytes.Buffer
			s := &Supervisor{Dir: t.TempDir(), Workspace: t.TempDir(), Tools: install.Tools{Ripgrep: "/tools/rg"},
				Isolation: unconfined,
				GitLimit:  3 * time.Second, Logger: slog.New(slog.NewTextHandler(&logged, nil))}
			is.NoErr(s.prepare())
			s.gitAsOpenCode(t, nil, "init", "-q")
			expect.WriteFile(t, filepath.Join(s.Workspace, "sub", "a.txt"), "one\n")
			fifo := filepath.Join(s.Workspace, "sub", name)
			is.NoErr(syscall.Mkfifo(fifo, 0o600))
			out, err := s.tryGitAsOpenCode(t, nil, c.command...)
			is.True(err != nil)
			expect.Contains(t, out, "git "+c.command[0]+" was ended after 3 s")
			out, err = s.tryGitAsOpenCode(t, nil, c.command...)
			is.True(err != nil)
			expect.Contains(t, out, "less than ten minutes ago")
			_, err = s.tryGitAsOpenCode(t, nil, "write-tree")
			is.True(err != nil) // it would be an old snapshot
			reported := s.reportSlowGit(time.Time{})
			expect.Contains(t, logged.String(), "command="+c.command[0])
			is.Equal(s.reportSlowGit(reported), reported)
			is.Equal(strings.Count(logged.String(), "took too long"), 1)

			is.NoErr(os.Remove(fifo))
			before := time.Now().Add(-11 * time.Minute)
			is.NoErr(os.Chtimes(s.path("tmp", "slow-git-"+c.command[0]), before, before))
			is.Equal(s.gitAsOpenCode(t, nil, c.command...), c.out) // no lock is left
			s.gitAsOpenCode(t, nil, "add", "--all")
			is.Equal(s.gitAsOpenCode(t, nil, "ls-files"), "sub/a.txt\n")
		})
	}
}

func TestSlowGitsAreEndedTogether(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	gitOrSkip(t)
	s := &Supervisor{Dir: t.TempDir(), Workspace: t.TempDir(), Tools: install.Tools{Ripgrep: "/tools/rg"},
		Isolation: unconfined, GitLimit: 4 * time.Second}
	is.NoErr(s.prepare())
	s.gitAsOpenCode(t, nil, "init", "-q")
	fifo := filepath.Join(s.Workspace, ".gitignore")
	is.NoErr(syscall.Mkfifo(fifo, 0o600))
	for tries := 0; ; tries++ {
		feed := time.AfterFunc(2100*time.Millisecond, func() { // git then waits for as long, and goes on
			if f, err := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
				f.Close()
			}
		})
		out, err := s.tryGitAsOpenCode(t, nil, "ls-files", "--others", "--exclude-standard")
		feed.Stop()
		if err != nil {
			expect.Contains(t, out, "git ls-files took too long less than ten minutes ago")
			is.True(tries > 1) // a single slow git does not cause it
			return
		}
		is.True(tries < 5)
	}
}

func TestOpenCodeIsNotStartedWithoutTheInertGit(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newTestSupervisor(t, filepath.Join(t.TempDir(), "a:b"), "touch started")
	err := s.Run(t.Context())
	is.True(err != nil)
	expect.Contains(t, err.Error(), "holds ':', which separates directories")
	is.Equal(expect.ReadFile(t, s.path("home", "started")), "")
}
