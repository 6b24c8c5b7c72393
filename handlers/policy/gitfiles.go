package policy

import (
	"path"
	"slices"
	"strings"
)

// maxEntries is how many names of a folder are read to look for a repository or a file.
const maxEntries = 20_000

// obeysPrograms reports whether the configuration of the workspace's repository may name programs. Its top is the workspace, or
// a folder above.
func (w workspace) obeysPrograms() bool {
	for dir := w.root; ; dir = path.Dir(dir) {
		if w.isRepository(dir) {
			entries, _ := w.list(dir, maxEntries)
			config, _ := w.list(dir+"/.git", maxEntries)
			return slices.ContainsFunc(entries, func(e Entry) bool { return e.Runs }) || slices.ContainsFunc(config, func(e Entry) bool { return e.Runs })
		}
		if dir == "/" {
			return false
		}
	}
}

// isRepository reports whether git may take a folder for the top of a repository.
func (w workspace) isRepository(dir string) bool {
	entries, ok := w.list(dir, maxEntries)
	return !ok || slices.ContainsFunc(entries, func(e Entry) bool { return strings.EqualFold(e.Name, ".git") })
}

// exists reports whether a path from a folder exists.
func (w workspace) exists(folder, p string) bool {
	at, cause := w.locate(folder, p)
	if cause != "" {
		return false
	}
	if at.lexical == w.root {
		return true
	}
	entries, ok := w.list(path.Dir(at.lexical), maxEntries)
	return ok && slices.ContainsFunc(entries, func(e Entry) bool { return e.Name == path.Base(at.lexical) })
}

// tracks reports whether git tracks a file by each of these names, in the repository around a folder.
func (w workspace) tracks(folder string, names []string) bool {
	if w.tracked == nil {
		return false
	}
	paths, ok := w.tracked(folder)
	return ok && !slices.ContainsFunc(names, func(name string) bool {
		at, cause := w.locate(folder, name)
		return cause != "" || !slices.Contains(paths, at.lexical)
	})
}

// inRepository returns where a path from the top of the repository around a folder may lead: the top is the folder or one above it.
func (w workspace) inRepository(folder, p string) (places []place) {
	for top := folder; ; top = path.Dir(top) {
		if at, cause := w.locate(top, p); cause == "" {
			places = append(places, at)
		}
		if top == "/" {
			return places
		}
	}
}
