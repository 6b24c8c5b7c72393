package protection

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/protected"
)

// Names returns the names that commands cannot change in the workspace. A long-running program may write the
// instructions, if a person allows it.
func (w *Workspace) Names() (all []Name) {
	all = gitFileNames(w.Dir) // first, because the mounts of other names must cover these
	for _, n := range projectNames {
		if !n.instructions || !w.LongRunning {
			all = append(all, n)
		}
	}
	all = append(all, bareRepositoryNames(w.Dir)...)
	if home, err := os.UserHomeDir(); err == nil && filepath.Clean(home) == w.Dir {
		all = append(all, homeNames()...)
	}
	return all
}

// projectNames are the names that commands cannot change in the top directory of a workspace. A missing one has no
// placeholder. Names in other directories are not protected, because people do not open those as projects.
var projectNames = listProjectNames()

func listProjectNames() (names []Name) {
	for _, path := range protected.Project {
		n := Name{Path: path}
		if path == ".git" {
			n.Children = gitNames
		}
		names = append(names, n)
	}
	for _, path := range protected.Instructions {
		names = append(names, Name{Path: path, instructions: true})
	}
	return names
}

// gitNames are the names in .git that make git run programs, and the one that names OpenCode's own repository for the
// workspace. The rest of .git is writable.
var gitNames = []Name{
	// core.fsmonitor, hooksPath, pager, …
	{Path: "config", placeholder: filePlaceholder},
	{Path: "config.worktree", placeholder: filePlaceholder},
	{Path: "commondir", placeholder: dotPlaceholder}, // names another directory for config and hooks
	{Path: "hooks", placeholder: directoryPlaceholder},
	{Path: "info", placeholder: directoryPlaceholder},
	{Path: "modules", placeholder: directoryPlaceholder},
	{Path: "worktrees", placeholder: directoryPlaceholder, Worktrees: true},
	{Path: "opencode", placeholder: directoryPlaceholder},
}

// gitFileNames returns the names to protect if .git is a file that names a git directory in the workspace. They are
// each directory of its path, so that no command replaces one, and gitNames in it.
func gitFileNames(workspace string) []Name {
	file := filepath.Join(workspace, ".git")
	info, err := os.Lstat(file)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	text, _ := os.ReadFile(file)
	dir, found := strings.CutPrefix(strings.TrimRight(string(text), "\r\n"), "gitdir: ")
	if !found {
		return nil
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(workspace, dir)
	}
	path, err := filepath.Rel(workspace, dir)
	// a link in the workspace is not resolved: a command can replace it, so Workspace.lock refuses it
	if real, failed := filepath.EvalSymlinks(dir); failed == nil && (err != nil || !filepath.IsLocal(path)) {
		path, err = filepath.Rel(workspace, real)
	}
	if err != nil || !filepath.IsLocal(path) {
		return nil
	}
	names := gitNames
	for ; path != "."; path = filepath.Dir(path) {
		kind := directoryPlaceholder
		if filepath.Dir(path) == "." {
			kind = noPlaceholder
		}
		names = []Name{{Path: filepath.Base(path), Children: names, placeholder: kind}}
	}
	return names
}

// homeNames returns the names that are also protected if the workspace is a home directory.
func homeNames() (names []Name) {
	for _, path := range protected.Home {
		names = append(names, Name{Path: path})
	}
	return names
}

// Name is a protected name and how to protect it.
type Name struct {
	Path string // relative to the directory it is listed for
	// Protected names in this directory; the rest is writable. If nil, the whole directory is protected.
	Children    []Name
	placeholder placeholderKind

	// Worktrees marks the directory in which git keeps a directory for each linked worktree. See worktreeNames.
	Worktrees bool

	// instructions marks texts for agents. Protect does not cover a symbolic link, and does not refuse it: projects often
	// have one text under two names.
	instructions bool
}

// HasPlaceholder reports whether Protect covers the name also where it is missing.
func (n Name) HasPlaceholder() bool { return n.placeholder != noPlaceholder }

// placeholderKind is the kind of file that is created at a missing name in a git directory while a command runs,
// because a mount needs a file to cover. It is an empty directory where possible, also for names of files.
type placeholderKind int

const (
	noPlaceholder placeholderKind = iota
	directoryPlaceholder
	filePlaceholder
	dotPlaceholder // a file that contains a dot: git reads commondir as the path of the repository
)

// BareRepository are the names of a bare repository. Git treats a directory with all of them as one, and obeys the
// configuration in it, if .git is missing or not valid. A command can make .git invalid, for example by removing
// .git/HEAD.
var BareRepository = []string{"HEAD", "objects", "refs"}

// bareRepositoryNames returns the names to protect if the workspace is a bare repository. Otherwise it returns only the
// name with which objects and refs can be elsewhere.
func bareRepositoryNames(workspace string) []Name {
	for _, name := range BareRepository {
		var now unix.Stat_t
		if unix.Lstat(filepath.Join(workspace, name), &now) != nil {
			return []Name{{Path: "commondir"}}
		}
	}
	// A command cannot remove objects and refs, because they are mounts.
	return append([]Name{{Path: "HEAD"}, {Path: "objects", Children: []Name{}}, {Path: "refs", Children: []Name{}}},
		gitNames...)
}

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
