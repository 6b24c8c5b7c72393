// Package files is the file system as the policy sees it: where a path leads, which files are protected or hold
// secrets, and what is below a folder. It does no I/O: the caller provides the functions that read the file system.
//
// Promises: paths are compared by component, both the lexical and the real path. There is a cause to ask if a path
// cannot be resolved, a folder cannot be listed, or a tree is too large.
//
// It must not know rules or how programs read their arguments. A Walk gets the folders that a command reads as a
// program.Tree, and the protected files as a function.
package files

import (
	"path"
	"strings"

	"pocketcoder/handlers/policy/display"
)

// Workspace is the folder in which the assistant works, and the file system around it.
type Workspace struct {
	Root    string                                                   // absolute, symlinks resolved
	Resolve func(path string) (real string, ok bool)                 // nil returns paths unchanged
	List    func(folder string, most int) (entries []Entry, ok bool) // at most so many names of a folder
	// files that git tracks around a folder; may be nil
	Tracked func(folder string) (paths []string, ok bool)
	Ignored Ignored // may be nil
	Budget  *Budget // of the evaluation; nil for no limit
}

// Ignored reports whether an ignore file names a path below root. It calls spend with a number of lines before it
// compares them, and returns false when spend does.
type Ignored func(path string, folder bool, spend func(steps int) bool) bool

// Kind is the type of a folder's entry.
type Kind byte

// Everything that is neither a folder nor a symlink is a file.
const (
	// everything else
	File Kind = iota
	Folder
	Link
)

type Entry struct {
	Name   string
	Kind   Kind
	Plain  bool     // its name is that of a secret file, but its content has no secret
	Runs   bool     // of .git: git may run programs that its configuration names
	Secret bool     // of .git: its configuration may hold a secret, such as a token in a URL
	Shows  []string // of an ignore file: hidden names that it makes ripgrep read; see program.ShownNames
}

// Location is the result of resolving a path.
type Location struct {
	Lexical string // clean, symlinks unresolved
	Real    string // symlinks resolved
}

// maxPath limits the length of a path, in bytes. A person decides about longer ones.
const maxPath = 4 << 10

// Locate resolves a path relative to a folder. cause is why the location is unknown. As in the kernel, .. leads to the
// parent of a symlink's target.
func (w Workspace) Locate(cwd, p string) (at Location, cause string) {
	switch {
	case p == "":
		return at, "the path is empty"
	case len(p) > maxPath:
		return at, "the path is too long to read"
	case !w.Budget.spend(1 + len(p)/64):
		return at, TooLong
	case strings.Contains(p, `\`):
		return at, "the path " + display.Quote(p) + " holds a backslash"
	case strings.HasPrefix(p, "~"):
		return at, display.Quote(p) + " leads to a home folder"
	}
	if cause := display.Misleading(p, false); cause != "" {
		return at, "the path cannot be trusted: " + cause
	}
	if !strings.HasPrefix(p, "/") {
		if cwd == "" {
			return at, "the folder " + display.Quote(p) + " starts from is not known"
		}
		p = cwd + "/" + p
	}
	at.Lexical = path.Clean(p)
	at.Real = "/"
	for _, part := range strings.Split(p, "/") {
		ok := true
		switch part {
		case "", ".":
		case "..":
			at.Real, ok = w.resolve(at.Real)
			at.Real = path.Dir(at.Real)
		default:
			at.Real = path.Join(at.Real, part)
		}
		if !ok {
			return at, "where " + display.Quote(p) + " leads cannot be found out"
		}
	}
	real, ok := w.resolve(at.Real)
	if !ok {
		return at, "where " + display.Quote(p) + " leads cannot be found out"
	}
	at.Real = real
	return at, ""
}

// Within reports whether a path is root or below it. It compares by component: /workspace2 is not in /workspace.
func Within(root, p string) bool {
	return root != "" && (p == root || root == "/" || strings.HasPrefix(p, root+"/"))
}
