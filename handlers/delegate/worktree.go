package delegate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission/workspace"
)

// worktrees is the directory of the git worktrees of delegates, in the workspace. There, the sandbox, the policy and
// OpenCode treat a worktree as any directory of the workspace. Git ignores the directory.
const worktrees = ".worktrees"

// branchPrefix begins the branches of worktrees.
const branchPrefix = "pocketcoder/"

type worktree struct{ root, branch string }

// Place is the directory of a project, and how git is run there.
type Place struct {
	Workspace string // absolute
	// Git runs a script in a directory of the workspace, in the sandbox, and returns its output. If the script fails, it
	// returns a refusal with what the script wrote to stderr.
	Git func(ctx context.Context, directory, script string) (string, error)
}

func (p Place) worktreeOf(delegate string) worktree {
	return worktree{filepath.Join(p.Workspace, worktrees, delegate), branchPrefix + delegate}
}

// addScript adds a worktree at $w, with the branch $b, to the repository of the current directory. A worktree that
// exists stays. It writes the path of the current directory in the repository.
const addScript = `set -eu
prefix=$(git rev-parse --show-prefix)
git rev-parse -q --verify HEAD >/dev/null || { echo "the repository has no commit" >&2; exit 1; }
mkdir -p "${w%/*}"
printf '*\n' >"${w%/*}/.gitignore"
[ -e "$w/.git" ] || git worktree add -q --no-track -b "$b" "$w" HEAD
[ -d "$w/$prefix" ] || prefix=
printf %s "$prefix"`

// closeScript removes the worktree of the current directory, $w, and then the branch $b unless it holds commits that
// are nowhere else. It writes "branch" if the branch stays. Git refuses to remove a worktree with changes and untracked
// files. It would remove ignored files, nested repositories in ignored directories, changes that the index hides, and
// commits of a HEAD without a branch. So the script looks for those, but for ignored files that are the same in the
// repository's own directory.
const closeScript = `set -eu
git=$(git rev-parse --path-format=absolute --git-common-dir)
keep() { echo "$1" >&2; exit 1; }
only=$(git ls-files --others --ignored --exclude-standard | while IFS= read -r file; do
	if [ -f "$file" ] && [ ! -L "$file" ] && cmp -s "$file" "${git%/.git}/$file"; then continue; fi
	printf '%s\n' "$file"
done | sed -n '1,5p;6s/.*/and more/p')
only=$(printf %s "$only" | sed 's/$/,/' | tr '\n' ' ' | sed 's/, *$//')
[ -z "$only" ] || keep "it holds ignored files that are nowhere else: $only"
hidden=$(git ls-files -v | grep '^[a-zS] ' || true)
[ -z "$hidden" ] || keep "git hides changes of some of its files (assume-unchanged or skip-worktree)"
[ -z "$(git rev-list -n 1 HEAD --not --branches --tags --remotes)" ] || keep "its HEAD has commits that no branch has"
cd /
git --git-dir="$git" worktree remove "$w"
git --git-dir="$git" branch -q -d "$b" 2>/dev/null || printf branch`

// gitEnvironment keeps git from what the repository and the home directory name: hooks, a file monitor, and the
// settings of the machine.
const gitEnvironment = `export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_CONFIG_COUNT=3
export GIT_CONFIG_KEY_0=core.hooksPath GIT_CONFIG_VALUE_0=/dev/null GIT_CONFIG_KEY_1=core.fsmonitor GIT_CONFIG_VALUE_1=false
export GIT_CONFIG_KEY_2=safe.bareRepository GIT_CONFIG_VALUE_2=explicit
`

// run runs a script for a worktree in the sandbox, with the repository of a directory. It runs without a permission
// decision, so it refuses a repository whose configuration may name a program, such as a filter.
func (p Place) run(ctx context.Context, directory, script string, t worktree) (string, error) {
	root, _ := workspace.RealPath(p.Workspace)
	if real, ok := workspace.RealPath(directory); !ok || workspace.RepositoryRunsPrograms(root, real) {
		return "", handlers.Refuse(handlers.Conflict, "the configuration of its repository may name programs that git runs")
	}
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	return p.Git(ctx, directory, gitEnvironment+fmt.Sprintf("w=%s b=%s\n%s", quote(t.root), quote(t.branch), script))
}

// addWorktree adds the worktree of a delegate to the repository of a directory. It returns the directory of the
// delegate in it. The script runs in the sandbox, because git runs programs that a repository names.
func (p Place) addWorktree(ctx context.Context, directory string, t worktree) (string, error) {
	if directory == "" {
		directory = p.Workspace
	}
	// Where isolation has no mounts, a command cannot make a directory beside protected files.
	_ = os.Mkdir(filepath.Join(p.Workspace, worktrees), 0o755) // the script reports what is wrong
	within, err := p.run(ctx, directory, addScript, t)
	if handlers.CodeOf(err) != "" {
		return "", handlers.RefuseField(handlers.Invalid, "worktree",
			"No git worktree can be made of %s: %v. Call again without worktree, or with the directory of a git repository.",
			directory, err)
	}
	if err != nil {
		return "", err
	}
	return p.directory("", filepath.Join(t.root, within))
}

// closeTree removes a worktree. It returns what closeScript writes.
func (p Place) closeTree(ctx context.Context, t worktree) (string, error) {
	if _, err := os.Lstat(t.root); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return p.run(ctx, t.root, closeScript, t)
}

// CloseWorktree removes the git worktree of a deleted delegate, unless it holds changes, and records it.
type CloseWorktree struct{ Delegate, Worktree, Branch string }

// CloseWorktree returns the event that it appends. If the worktree cannot be removed, the event says that it is kept,
// and why.
func (h *Delegates) CloseWorktree(ctx context.Context, c CloseWorktree) (closed events.WorktreeClosed, seq uint64,
	err error) {
	t := worktree{c.Worktree, c.Branch}
	closed.Worktree = t.root
	var out string
	place, err := h.In(ctx, c.Delegate)
	if err == nil {
		out, err = place.closeTree(ctx, t)
	}
	switch {
	case handlers.CodeOf(err) != "":
		closed.Kept, closed.Branch = err.Error(), t.branch
	case err != nil:
		return closed, 0, err
	case out != "":
		closed.Branch = t.branch
	}
	seq, err = h.resultsOf(ctx, c.Delegate).ExecuteOne(ctx, h.Log, c.Delegate, handlers.Command{Actor: events.ActorSystem},
		func(s *resultState) (events.Data, uint64, error) {
			if s.closed || s.Deleted == 0 {
				return nil, 0, nil
			}
			return closed, 0, nil
		})
	return closed, seq, err
}
