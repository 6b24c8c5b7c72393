// Package files is the file system as the policy sees it: where a path leads, which places are protected or hold
// secrets, and what lies below a folder. It does no I/O of its own: the caller gives the functions that look.
//
// Promises: paths are compared by component, by their own name and by where their symlinks lead. A place that cannot
// be resolved, a folder that cannot be listed, and a tree that is too large have a cause.
//
// It must not know rules or how programs read their arguments: a Walk gets what a command reads as a program.Tree, and
// what rules protect as a function.
package files

import (
	"path"
	"strings"

	"pocketcoder/handlers/policy/display"
)

// Workspace is the folder that the assistant works in, and the file system around it as the caller shows it.
type Workspace struct {
	Root    string                                                   // absolute, symlinks resolved
	Resolve func(path string) (real string, ok bool)                 // nil takes paths as they are
	List    func(folder string, most int) (entries []Entry, ok bool) // the names in a folder, at most so many
	// the files that git tracks around a folder; may be nil
	Tracked func(folder string) (paths []string, ok bool)
	Ignored Ignored // may be nil
	Budget  *Budget // of the evaluation; nil has no bound
}

// Ignored reports whether an ignore file names a path below root. It calls spend with the number of lines before it
// compares them, and returns false once spend does.
type Ignored func(path string, folder bool, spend func(steps int) bool) bool

// Kind is what a name in a folder is.
type Kind byte

// Everything that is neither a folder nor a symlink is a file.
const (
	File Kind = iota
	Folder
	Link
)

// Entry is a name in a folder.
type Entry struct {
	Name   string
	Kind   Kind
	Plain  bool     // its name is a secret one, but its content was read and holds none
	Runs   bool     // of .git: git may run programs that it names
	Secret bool     // of .git: its configuration may hold a secret, such as a token in the URL of a remote
	Shows  []string // of an ignore file: the hidden names that it makes ripgrep read; see program.ShownNames
}

// Location is where a path leads.
type Location struct {
	Lexical string // clean, symlinks as they are
	Real    string // symlinks resolved
}

// maxPath is the length of the longest path that the policy reads, in bytes. A person reads longer ones.
const maxPath = 4 << 10

// Locate returns where a path leads from a folder. cause is why that is not known. A .. goes up from where the symlink
// before it leads, as the kernel does.
func (w Workspace) Locate(cwd, p string) (at Location, cause string) {
	switch {
	case p == "":
		return at, "the path is empty"
	case len(p) > maxPath:
		return at, "the path is too long to read"
	case !w.Budget.Spend(1 + len(p)/64):
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

// Within reports whether a path is root or lies below it. It compares by component: /workspace2 is not in /workspace.
func Within(root, p string) bool {
	return root != "" && (p == root || root == "/" || strings.HasPrefix(p, root+"/"))
}
