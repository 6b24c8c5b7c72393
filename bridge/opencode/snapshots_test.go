package opencode_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/snapshots"
	"pocketcoder/ops/expect"
)

// workspace is a directory with snapshots in a git directory of its own, as OpenCode has them.
type workspace struct {
	*snapshots.Snapshots
	t   *testing.T
	git string // directory
}

func newWorkspace(t *testing.T) workspace {
	t.Helper()
	real, err := filepath.EvalSymlinks(t.TempDir())
	is.New(t).NoErr(err)
	w := workspace{t: t, git: filepath.Join(real, "snapshots", "project", "worktree")}
	w.Snapshots = &snapshots.Snapshots{Workspace: filepath.Join(real, "workspace"), Dir: filepath.Join(real, "snapshots"),
		Kept: filepath.Join(real, "kept"), Git: func(ctx context.Context, args ...string) (string, error) {
			c := exec.CommandContext(ctx, "git", args...)
			c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + real, "GIT_CONFIG_NOSYSTEM=1"}
			out, err := c.Output()
			return string(out), err
		}}
	is.New(t).NoErr(os.MkdirAll(w.Workspace, 0o755))
	w.run("init", "-q", "--bare", w.git)
	w.run("--git-dir="+w.git, "config", "core.bare", "false")
	w.run("--git-dir="+w.git, "config", "core.worktree", w.Workspace)
	return w
}

func (w workspace) run(args ...string) string {
	w.t.Helper()
	out, err := w.Git(w.t.Context(), args...)
	is.New(w.t).NoErr(err)
	return strings.TrimSpace(out)
}

// take returns a snapshot of the workspace.
func (w workspace) take() string {
	w.t.Helper()
	w.run("-C", w.Workspace, "--git-dir="+w.git, "add", "--all", "--sparse", ".")
	return w.run("-C", w.Workspace, "--git-dir="+w.git, "write-tree")
}

func (w workspace) path(name string) string { return filepath.Join(w.Workspace, name) }

func (w workspace) paths(names ...string) (all []string) {
	for _, name := range names {
		all = append(all, w.path(name))
	}
	return all
}

func (w workspace) write(name, text string) {
	w.t.Helper()
	expect.WriteFile(w.t, w.path(name), text)
}

func (w workspace) remove(name string) {
	w.t.Helper()
	is.New(w.t).NoErr(os.RemoveAll(w.path(name)))
}

func (w workspace) link(target, name string) {
	w.t.Helper()
	is.New(w.t).NoErr(os.Symlink(target, w.path(name)))
}

func (w workspace) keep(c snapshots.Copies) {
	w.t.Helper()
	is.New(w.t).NoErr(w.Keep("undo", c))
}

func (w workspace) restore() []string {
	w.t.Helper()
	r, err := w.Restore(w.t.Context(), "undo")
	is.New(w.t).NoErr(err)
	is.New(w.t).Equal(r.Copies, "")
	_, err = os.Lstat(filepath.Join(w.Kept, "undo"))
	is.New(w.t).True(errors.Is(err, fs.ErrNotExist))
	return r.Kept
}

// undone writes files as an undo makes them. It returns, for Copies.Written, the snapshot in which they are.
func (w workspace) undone(names ...string) map[string][]string {
	w.t.Helper()
	written, snapshot := map[string][]string{}, ""
	for _, name := range names {
		w.write(name, "undone\n")
	}
	snapshot = w.take()
	for _, name := range names {
		written[w.path(name)] = []string{snapshot}
		first, _, _ := strings.Cut(name, "/")
		w.remove(first)
	}
	return written
}

func TestASecondKeepRenewsCopies(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := newWorkspace(t)
	written := w.undone("same", "edited", "put back", "undone", "later", "to delete")
	for _, name := range []string{"same", "edited", "put back", "undone", "to delete"} {
		w.write(name, "first\n")
	}
	w.keep(snapshots.Copies{Files: w.paths("same", "edited", "put back", "undone"), Written: written,
		Absent: w.paths("to delete"), Changed: w.paths("edited", "put back", "undone")})
	w.write("edited", "other\n") // of the same size
	w.write("put back", "as the turn left it\n")
	w.write("undone", "as OpenCode makes it\n")
	w.write("later", "a person's\n")
	w.write("to delete", "a person's\n")
	w.keep(snapshots.Copies{Files: w.paths("same", "edited", "later", "to delete"), Written: written,
		Unchanged: w.paths("put back"), Changed: w.paths("edited", "later", "to delete")})
	copies, err := os.ReadDir(filepath.Join(w.Kept, "undo"))
	is.NoErr(err)
	is.Equal(len(copies), 6) // of five files, and the list
	for _, name := range []string{"same", "edited", "put back", "undone", "later", "to delete"} {
		w.write(name, "undone\n")
	}
	is.Equal(w.restore(), w.paths("edited", "later", "to delete", "undone"))
	for name, want := range map[string]string{"same": "first\n", "edited": "other\n", "put back": "undone\n",
		"undone": "first\n", "later": "a person's\n", "to delete": "a person's\n"} {
		is.Equal(expect.ReadFile(t, w.path(name)), want)
	}
}

// A person has put other things in the places of files and directories. An undo replaces them.
func TestWhatStandsInThePlaceOfAFileIsKept(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := newWorkspace(t)
	outside := t.TempDir()
	expect.WriteFile(t, filepath.Join(outside, "file"), "outside\n")
	written := w.undone("is a file/a/b", "is a link/file", "is a directory", "link", "missing")
	w.write("is a file", "a person's\n")
	w.link(outside, "is a link")
	w.write("is a directory/sub/file", "a person's\n")
	w.link("nowhere", "link")
	w.keep(snapshots.Copies{Files: w.paths("is a file/a/b", "is a link/file", "is a directory", "link", "missing",
		"../outside"), Written: written})
	for _, name := range []string{"is a file", "is a link", "is a directory", "link"} {
		w.remove(name)
	}
	for _, name := range []string{"is a file/a/b", "is a link/file", "is a directory", "link", "missing"} {
		w.write(name, "undone\n")
	}
	w.restore()
	is.Equal(expect.ReadFile(t, w.path("is a file")), "a person's\n")
	is.Equal(expect.ReadFile(t, w.path("is a directory/sub/file")), "a person's\n")
	for name, want := range map[string]string{"is a link": outside, "link": "nowhere"} {
		target, err := os.Readlink(w.path(name))
		is.NoErr(err)
		is.Equal(target, want)
	}
	_, err := os.Lstat(w.path("missing"))
	is.True(errors.Is(err, fs.ErrNotExist))
	is.Equal(expect.ReadFile(t, filepath.Join(outside, "file")), "outside\n")
}

// A person changes files after OpenCode has undone them, and before they are restored.
func TestAFileThatWasChangedAfterTheUndoStays(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := newWorkspace(t)
	written := w.undone("undone", "edited", "deleted")
	for _, name := range []string{"undone", "edited", "deleted", "left", "left and edited"} {
		w.write(name, "a person's\n")
	}
	w.keep(snapshots.Copies{Files: w.paths("undone", "edited", "deleted"), Written: written,
		Absent: w.paths("left", "left and edited"), Changed: w.paths("undone")})
	w.write("undone", "undone\n")
	w.write("edited", "newest\n")
	w.remove("deleted")
	w.write("left and edited", "newest\n")
	for range 2 { // a crash may come before the outcome is recorded
		r, err := w.Restore(t.Context(), "undo")
		is.NoErr(err)
		is.Equal(r.Kept, w.paths("deleted", "edited", "left and edited", "undone"))
		is.Equal(r.Copies, filepath.Join(w.Kept, "undo"))
		for name, want := range map[string]string{"undone": "a person's\n", "edited": "newest\n",
			"left and edited": "newest\n"} {
			is.Equal(expect.ReadFile(t, w.path(name)), want)
		}
		for _, name := range []string{"left", "deleted"} {
			_, err := os.Lstat(w.path(name))
			is.True(errors.Is(err, fs.ErrNotExist))
		}
	}
	for name, copies := range map[string]int{"undone": 0, "edited": 1, "deleted": 1} {
		found, err := filepath.Glob(filepath.Join(w.Kept, "undo", "*-"+name))
		is.NoErr(err)
		is.Equal(len(found), copies)
	}
}

// A command puts a link in the place of a directory while an undo runs.
func TestNothingIsRestoredThroughALink(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := newWorkspace(t)
	without := w.undone("other")[w.path("other")] // OpenCode deletes what a snapshot lacks
	written := map[string][]string{}
	for _, name := range []string{"file/config", "far/config", "sub/config", "sub/a/config", "whole/config"} {
		w.write(name, "a command's\n")
		written[w.path(name)] = without
	}
	w.keep(snapshots.Copies{Files: slices.Collect(maps.Keys(written)), Written: written})
	w.write("protected/config", "a person's\n")
	for _, name := range []string{"file", "far", "sub", "whole"} {
		w.remove(name)
	}
	w.write("file", "in the place of a folder\n")
	w.link(t.TempDir(), "far")
	w.link("protected", "sub")
	restored, err := w.Restore(t.Context(), "undo")
	is.NoErr(err) // at once: another try would find the same
	is.Equal(restored.Kept, w.paths("far/config", "file/config", "sub/a/config", "sub/config"))
	is.Equal(restored.Copies, filepath.Join(w.Kept, "undo"))
	is.Equal(expect.ReadFile(t, w.path("whole/config")), "a command's\n")
	copies, err := filepath.Glob(filepath.Join(restored.Copies, "*-config"))
	is.NoErr(err)
	is.Equal(len(copies), 4)
	is.Equal(expect.ReadFile(t, w.path("protected/config")), "a person's\n")
	entries, err := os.ReadDir(w.path("protected"))
	is.NoErr(err)
	is.Equal(len(entries), 1)
}

func TestOneFileThatCannotBeRestoredKeepsAllCopies(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := newWorkspace(t)
	written := w.undone("a/b", "b")
	w.write("a", "a person's\n") // in the place of the directory
	w.write("b", "a person's\n")
	w.keep(snapshots.Copies{Files: w.paths("a/b", "b"), Written: written})
	w.remove("a")
	w.write("a/b", "undone\n")
	w.write("a/file", "of another program\n")
	w.write("b", "undone\n")
	_, err := w.Restore(t.Context(), "undo")
	is.True(err != nil)
	expect.Contains(t, err.Error(), "restore a: a directory with files is in its place")
	expect.Contains(t, err.Error(), "the copies are in "+filepath.Join(w.Kept, "undo"))
	is.Equal(expect.ReadFile(t, w.path("b")), "a person's\n")
	copies, err := filepath.Glob(filepath.Join(w.Kept, "undo", "*-a"))
	is.NoErr(err)
	is.Equal(len(copies), 1)
	is.Equal(expect.ReadFile(t, copies[0]), "a person's\n")
	w.remove("a")
	w.restore()
	is.Equal(expect.ReadFile(t, w.path("a")), "a person's\n")
}

func TestFilesThatCannotBeComparedDiffer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := newWorkspace(t)
	for _, name := range []string{"dir/file", "linked/file", "same", "changed", "filtered"} {
		w.write(name, "before\n")
	}
	w.run("init", "-q", w.path("nested"))
	w.run("-C", w.path("nested"), "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "one")
	snapshot := w.take()
	w.run("-C", w.path("nested"), "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "two")
	for _, name := range []string{"dir", "linked"} {
		w.remove(name)
	}
	outside := t.TempDir()
	expect.WriteFile(t, filepath.Join(outside, "file"), "before\n")
	w.write("dir", "is a file\n")
	w.link(outside, "linked")
	w.write("changed", "after\n")
	w.write(".gitattributes", "filtered filter=fails\n") // git cannot hash this file
	w.run("--git-dir="+w.git, "config", "filter.fails.clean", "false")
	w.run("--git-dir="+w.git, "config", "filter.fails.required", "true")
	all := w.paths("changed", "dir/file", "filtered", "linked/file", "nested", "same")
	differing, err := w.Differing(t.Context(), snapshot, all)
	is.NoErr(err)
	is.Equal(differing, w.paths("changed", "dir/file", "filtered", "linked/file"))
	differing, err = w.Differing(t.Context(), snapshot, w.paths("missing", "dir/missing", "linked/missing"))
	is.NoErr(err)
	is.Equal(len(differing), 0) // they are neither here nor there
}
