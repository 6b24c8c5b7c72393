package protection

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/protected"
)

// Names returns the names that commands cannot create or change in the workspace. A long-running program may write the
// instructions, if a person allows it.
func (w *Workspace) Names() (all []Name) {
	all = gitFileNames(w.Dir) // first, because the mounts of other names must cover these
	for _, n := range projectNames {
		if n.instructions && w.LongRunning {
			continue
		}
		if n.instructions && shadows(w.Dir, n.Path) {
			n.placeholder = noPlaceholder
		}
		all = append(all, n)
	}
	all = append(all, bareRepositoryNames(w.Dir)...)
	if home, err := os.UserHomeDir(); err == nil && filepath.Clean(home) == w.Dir {
		all = append(all, homeNames()...)
	}
	return all
}

// projectNames are the names that commands cannot create or change in the top directory of a workspace, including
// missing ones. Names in other directories are not protected, because people do not open those as projects.
var projectNames = listProjectNames()

func listProjectNames() (names []Name) {
	for _, path := range protected.Project {
		n := Name{Path: path, placeholder: directoryPlaceholder}
		switch {
		case path == ".git":
			n.Children = gitNames // a command cannot run git init here; a person can
		case path == "opencode.json" || path == "opencode.jsonc":
			// OpenCode fails on a directory with this name, and git would show a file. So a command can create these files.
			// OpenCode ignores them when PocketCoder runs it.
			n.placeholder = noPlaceholder
		}
		names = append(names, n)
	}
	for _, path := range protected.Instructions {
		names = append(names, Name{Path: path, placeholder: directoryPlaceholder, instructions: true})
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
		names = []Name{{Path: filepath.Base(path), Children: names, placeholder: directoryPlaceholder}}
	}
	return names
}

// homeNames returns the names that are also protected if the workspace is a home directory.
func homeNames() (names []Name) {
	for _, path := range protected.Home {
		names = append(names, Name{Path: path, placeholder: directoryPlaceholder})
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

	// instructions marks texts for agents. A symbolic link is not protected: projects often have one text under two
	// names.
	instructions bool
}

// placeholderKind is the kind of file that is created at a missing name while a command runs, because a mount needs
// a file to cover. It is an empty directory where possible, also for names of files: git and tools that list files
// skip it.
type placeholderKind int

const (
	noPlaceholder placeholderKind = iota // a missing name is not protected
	directoryPlaceholder
	filePlaceholder
	dotPlaceholder // a file that contains a dot: git reads commondir as the path of the repository
)

// instructionOrder is the order in which OpenCode looks for instructions in a directory. It reads the first file
// that exists.
var instructionOrder = []string{"AGENTS.md", "CLAUDE.md", "CONTEXT.md"}

// shadows reports whether a placeholder with this name would prevent OpenCode from reading a later file of
// instructionOrder.
func shadows(workspace, name string) bool {
	at := slices.Index(instructionOrder, name)
	return at >= 0 && slices.ContainsFunc(instructionOrder[at+1:], func(later string) bool {
		return exists(filepath.Join(workspace, later))
	})
}

// bareRepositoryNames returns the names to protect so that git does not treat the workspace as a bare repository and
// obey the configuration in it. Git does so if the directory has HEAD, objects and refs, and .git is missing or not
// valid. A command can make .git invalid, for example by removing .git/HEAD. With a file commondir, objects and refs
// can be elsewhere. One missing name of the three is enough. An existing placeholder stays protected: a running
// command may have removed another name since. A placeholder HEAD makes `git diff HEAD` ambiguous, so it is the last
// choice.
func bareRepositoryNames(workspace string) []Name {
	names := []Name{{Path: "commondir", placeholder: directoryPlaceholder}}
	for _, name := range []string{"refs", "objects", "HEAD"} {
		var now unix.Stat_t
		missing := unix.Lstat(filepath.Join(workspace, name), &now) != nil
		if missing && len(names) == 1 || !missing && isPlaceholder(now) {
			names = append(names, Name{Path: name, placeholder: directoryPlaceholder})
		}
	}
	if len(names) > 1 {
		return names
	}
	// It is a bare repository. A command cannot remove objects and refs, because they are mounts.
	names = []Name{{Path: "HEAD"}, {Path: "objects", Children: []Name{}},
		{Path: "refs", Children: []Name{}}}
	return append(names, gitNames...)
}

// bareRepositoryPlaceholders are all placeholders that bareRepositoryNames can return.
var bareRepositoryPlaceholders = []Name{{Path: "HEAD", placeholder: directoryPlaceholder},
	{Path: "commondir", placeholder: directoryPlaceholder}, {Path: "refs", placeholder: directoryPlaceholder},
	{Path: "objects", placeholder: directoryPlaceholder}}
