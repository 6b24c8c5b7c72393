package protection

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// worktreeNames are the names that stay protected in git's directory of a linked worktree: those that name other
// directories, and a configuration. Git writes the others, such as HEAD and index, with each commit.
var worktreeNames = []Name{
	{Path: "commondir"},
	{Path: "gitdir"},
	{Path: "config.worktree", placeholder: filePlaceholder},
}

// ChildrenOf returns the names in the directory of a name, which is at path.
func (w *Workspace) ChildrenOf(n Name, path string) (names []Name) {
	if !n.Worktrees {
		return n.Children
	}
	for _, tree := range w.linkedWorktrees(path) {
		names = append(names, Name{Path: tree, Children: worktreeNames})
	}
	return names
}

// linkedWorktrees lists the names in a directory of linked worktrees that belong to worktrees in the workspace.
// Commands can change those, as they can change the worktrees. A worktree elsewhere is a folder that a person may open
// as a project.
func (w *Workspace) linkedWorktrees(dir string) (names []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		if !e.IsDir() {
			continue
		}
		tree := readLine(filepath.Join(at, "gitdir"))
		if tree != "" && !filepath.IsAbs(tree) {
			tree = filepath.Join(at, tree)
		}
		if rel, err := filepath.Rel(w.Dir, tree); err == nil && rel != "." && filepath.IsLocal(rel) {
			names = append(names, e.Name())
		}
	}
	return names
}

// maxLine is more than the kernel accepts as a path.
const maxLine = 8 << 10

// readLine returns the only line of a regular file, and "" for anything else.
func readLine(path string) string {
	f, err := os.OpenFile(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxLine {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(f, maxLine))
	line := strings.TrimRight(string(text), "\r\n")
	if strings.ContainsAny(line, "\r\n") {
		return ""
	}
	return line
}

// MakeWorktrees makes the directory of linked worktrees in the repository of the workspace, for a command that manages
// worktrees. A placeholder becomes that directory.
func (w *Workspace) MakeWorktrees() error {
	return w.makeWorktrees(w.Dir, w.Names())
}

func (w *Workspace) makeWorktrees(dir string, names []Name) error {
	for _, n := range names {
		path := filepath.Join(dir, n.Path)
		if n.Worktrees {
			if err := makeDirectory(path); err != nil {
				return fmt.Errorf("make directory of worktrees: %w", err)
			}
			continue
		}
		var now unix.Stat_t
		if n.Children == nil || unix.Lstat(path, &now) != nil || now.Mode&unix.S_IFMT != unix.S_IFDIR || isPlaceholder(now) {
			continue
		}
		if err := w.makeWorktrees(path, n.Children); err != nil {
			return err
		}
	}
	return nil
}

// makeDirectory makes a directory, or makes one of a placeholder.
func makeDirectory(path string) error {
	if err := unix.Mkdir(path, 0o755); !errors.Is(err, unix.EEXIST) {
		return err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil || !isPlaceholder(now) {
		return err
	}
	return unix.Fchmod(fd, 0o755)
}
