package policy

import (
	"path"
	"strings"
)

// workspace is the folder that the assistant works in, and the file system around it as the caller shows it.
type workspace struct {
	root    string                                                   // absolute, symlinks resolved
	resolve func(path string) (real string, ok bool)                 // nil takes paths as they are
	list    func(folder string, most int) (entries []Entry, ok bool) // the names in a folder, at most so many
	tracked func(folder string) (paths []string, ok bool)            // the files that git tracks around a folder; may be nil
	ignored func(path string, folder bool) bool                      // whether an ignore file names a path below root; may be nil
}

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
	Name  string
	Kind  Kind
	Plain bool     // its name is a secret one, but its content was read and holds none
	Runs  bool     // of a .git/config, or of a .git that is a file: git may run programs that a configuration names
	Shows []string // of an ignore file: the hidden names that it makes ripgrep read; see ShownNames
}

// place is where a path leads.
type place struct {
	lexical string // clean, symlinks as they are
	real    string // symlinks resolved
}

// maxPath is the length of the longest path that the policy reads, in bytes. A person reads longer ones.
const maxPath = 4 << 10

// locate finds where a path leads from a folder. A .. goes up from where the symlink before it leads, as the kernel does.
func (w workspace) locate(cwd, p string) (at place, cause string) {
	switch {
	case p == "":
		return at, "the path is empty"
	case len(p) > maxPath:
		return at, "the path is too long to read"
	case strings.Contains(p, `\`):
		return at, "the path " + quoted(p) + " holds a backslash"
	case strings.HasPrefix(p, "~"):
		return at, quoted(p) + " leads to a home folder"
	}
	if cause := readable(p, false); cause != "" {
		return at, "the path cannot be trusted: " + cause
	}
	if !strings.HasPrefix(p, "/") {
		if cwd == "" {
			return at, "the folder " + quoted(p) + " starts from is not known"
		}
		p = cwd + "/" + p
	}
	at.lexical = path.Clean(p)
	at.real = "/"
	for _, part := range strings.Split(p, "/") {
		ok := true
		switch part {
		case "", ".":
		case "..":
			at.real, ok = w.resolved(at.real)
			at.real = path.Dir(at.real)
		default:
			at.real = path.Join(at.real, part)
		}
		if !ok {
			return at, "where " + quoted(p) + " leads cannot be found out"
		}
	}
	real, ok := w.resolved(at.real)
	if !ok {
		return at, "where " + quoted(p) + " leads cannot be found out"
	}
	at.real = real
	return at, ""
}

func (w workspace) resolved(p string) (string, bool) {
	if w.resolve == nil {
		return p, true
	}
	return w.resolve(p)
}

// within compares by component: /workspace2 is not in /workspace.
func within(root, p string) bool {
	return root != "" && (p == root || root == "/" || strings.HasPrefix(p, root+"/"))
}
