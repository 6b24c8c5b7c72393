package sandbox

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/sandbox/isolation"
)

// manage runs a command that manages git worktrees.
func (j *testWorker) manage(command string) (output string, status int) {
	r := j.request(command)
	r.ManagesWorktrees = true
	var out bytes.Buffer
	result := j.Exec(j.t.Context(), r, &out, &out)
	return out.String(), result.ExitCode
}

// The workspace itself is the repository, which is the usual case.
func TestIsolationLetsWorktreesBeMadeAndCommittedInWhereTheWorkspaceIsTheRepository(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, func(workspace string) {
			repository(t)(workspace)
			git := exec.Command("sh", "-ec", "mkdir .worktrees; git add file; git -c user.name=n -c user.email=n@example.org"+
				" commit -q -m first; git branch other; git worktree add -q ../linked other")
			git.Dir = workspace
			out, err := git.CombinedOutput()
			is.NoErr(err)
			is.Equal(string(out), "")
		})
		out, result := j.sh("git worktree add -q -b refused .worktrees/refused HEAD")
		is.True(result.ExitCode != 0 || !j.mounts) // a command of a chat cannot
		is.True(out != "")
		is.Equal(j.entries(".git/worktrees"), []string{"linked"})
		out, status := j.manage("git worktree add -q -b one .worktrees/one HEAD")
		is.Equal([]any{status, out}, []any{0, ""})
		out, result = j.sh("cd .worktrees/one && echo b >b && git add b && git commit -q -m second && git log -1 --format=%s")
		is.Equal([]any{result.ExitCode, out}, []any{0, "second\n"})

		escapes := []escape{
			{"mkdir %w/.git/worktrees/new", refusals, false},
			{"create %w/.git/worktrees/linked/new", refusals, false}, // a person may open the worktree elsewhere
			{"create %w/.git/worktrees/linked/commondir", refusals, false},
			{"rename %w/sub %w/.git/worktrees/linked", refusals, false},
		}
		for _, name := range []string{"commondir", "gitdir", "config.worktree"} {
			at := "%w/.git/worktrees/one/" + name
			escapes = append(escapes, escape{"create " + at, refusals, false}, escape{"remove " + at, refusals, false},
				escape{"rename %w/file " + at, refusals, false})
		}
		if j.mounts {
			j.run(t, escapes)
		} else {
			j.sh("mkdir .git/worktrees/new; echo >.git/worktrees/linked/new; echo evil >.git/worktrees/one/gitdir")
			is.Equal(j.entries(".git/worktrees"), []string{"linked", "one"})
			_, err := os.Stat(filepath.Join(j.workspace, ".git/worktrees/linked/new"))
			is.True(os.IsNotExist(err))
			out, _ = j.sh("cat .git/worktrees/one/gitdir")
			is.Equal(out, filepath.Join(j.workspace, ".worktrees/one/.git")+"\n")
		}

		out, status = j.manage("git worktree remove .worktrees/one")
		is.Equal([]any{status, out}, []any{0, ""})
		_, err := os.Stat(filepath.Join(j.workspace, ".git/worktrees/one"))
		is.True(os.IsNotExist(err))
	})
}
