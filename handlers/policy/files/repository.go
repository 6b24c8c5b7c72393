package files

import (
	"path"
	"slices"
	"strings"
)

// maxEntries limits the names of a folder that are read to find a repository or a file.
const maxEntries = 20_000

// NamesPrograms reports whether the workspace's repository may name programs that git runs.
func (w Workspace) NamesPrograms() bool {
	git, found, ok := w.repository()
	return !ok || found && git.Runs
}

// HoldsSecrets reports whether the configuration of the workspace's repository may hold a secret.
func (w Workspace) HoldsSecrets() bool {
	git, found, ok := w.repository()
	return !ok || found && git.Secret
}

// repository returns the entry .git of the workspace's repository, whose top is the workspace or a parent of it. ok is
// false if the repository has no visible .git.
func (w Workspace) repository() (git Entry, found, ok bool) {
	for dir := w.Root; ; dir = path.Dir(dir) {
		if w.IsRepository(dir) {
			entries, ok := w.Entries(dir, maxEntries+1)
			i := slices.IndexFunc(entries, func(e Entry) bool { return e.Name == ".git" })
			if !ok || i < 0 {
				return git, false, false
			}
			return entries[i], true, true
		}
		if dir == "/" {
			return git, false, true
		}
	}
}

// IsRepository reports whether git may take a folder as the top of a repository or as a bare repository. It returns
// true for a folder with too many names.
func (w Workspace) IsRepository(dir string) bool {
	if w.Budget == nil {
		return w.looksLikeRepository(dir)
	}
	is, found := w.Budget.repositories[dir]
	if !found {
		is = w.looksLikeRepository(dir)
		w.Budget.repositories[dir] = is
	}
	return is
}

func (w Workspace) looksLikeRepository(dir string) bool {
	entries, ok := w.Entries(dir, maxEntries+1)
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e Entry) bool { return strings.EqualFold(e.Name, name) })
	}
	bare := has("HEAD") && (has("commondir") || has("objects") && has("refs"))
	return !ok || len(entries) > maxEntries || has(".git") || bare
}

func (w Workspace) Exists(folder, p string) bool {
	at, cause := w.Locate(folder, p)
	if cause != "" {
		return false
	}
	if at.Lexical == w.Root {
		return true
	}
	entries, ok := w.Entries(path.Dir(at.Lexical), maxEntries)
	return ok && slices.ContainsFunc(entries, func(e Entry) bool { return e.Name == path.Base(at.Lexical) })
}

// Tracks reports whether git tracks a file with each of these names in the repository around a folder.
func (w Workspace) Tracks(folder string, names []string) bool {
	paths, ok := w.TrackedFiles(folder)
	return ok && !slices.ContainsFunc(names, func(name string) bool {
		at, cause := w.Locate(folder, name)
		return cause != "" || !w.Budget.spend(len(paths)/scansByStep) || !slices.Contains(paths, at.Lexical)
	})
}

// InRepository returns the possible locations of a path in the repository around a folder, whose top is the folder or a
// parent of it.
func (w Workspace) InRepository(folder, p string) (places []Location) {
	for top := folder; ; top = path.Dir(top) {
		if at, cause := w.Locate(top, p); cause == "" {
			places = append(places, at)
		}
		if top == "/" {
			return places
		}
	}
}
