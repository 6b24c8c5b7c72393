package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// How many names below a folder are looked at before a command that reads them all is asked, and a search of OpenCode's own.
const (
	maxTree   = 20_000
	maxSearch = 100_000
)

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

// walk looks at what lies below folders.
type walk struct {
	tree
	ask   Ask
	rules []*compiled
	most  int
	left  int
	seen  map[string]bool
	shows []string // hidden names that it reads all the same

	ignores bool // it skips what ignore files name
	named   bool // it reads a file that only matches although an ignore file names it
}

func (w *walk) from(folder string) string {
	if w.tracked {
		return w.index(folder)
	}
	for _, name := range w.folders {
		at, cause := w.ask.locate(folder, name)
		if cause == "" && !within(w.ask.Root, at.real) {
			continue // no folder of the workspace: its arguments were looked at already
		}
		for dir := at.real; cause == "" && w.shown && !w.hidden && dir != w.ask.Root; {
			dir = path.Dir(dir)
			entries, _ := w.ask.List(dir, w.left+1)
			w.show(entries)
		}
		if cause == "" {
			cause = w.folder(at.real)
		}
		if cause != "" {
			return cause
		}
	}
	return ""
}

// index looks at what git tracks, or at the whole workspace where that is not known.
func (w *walk) index(folder string) string {
	var paths []string
	known := false
	if w.ask.Tracked != nil {
		paths, known = w.ask.Tracked(folder)
	}
	if !known {
		return w.folder(w.ask.Root)
	}
	var limits []string
	for _, name := range w.folders {
		if at, cause := w.ask.locate(folder, name); cause == "" {
			limits = append(limits, at.lexical)
		}
	}
	for _, p := range paths {
		if len(limits) < len(w.folders) || len(limits) == 0 || slices.ContainsFunc(limits, func(limit string) bool { return within(limit, p) }) {
			if cause := w.file(place{p, p}, false); cause != "" {
				return cause
			}
		}
	}
	return ""
}

func (w *walk) folder(folder string) string {
	if w.seen[folder] {
		return ""
	}
	w.seen[folder] = true
	entries, ok := w.ask.List(folder, w.left+1)
	if !ok {
		return quoted(folder) + " cannot be listed"
	}
	w.show(entries)
	for _, entry := range entries {
		if w.left--; w.left < 0 {
			return fmt.Sprintf("there are more than %d files, too many to check for protected ones", w.most)
		}
		if w.skipsHidden(entry.Name) || entry.Kind == Folder && slices.Contains(w.skips, entry.Name) {
			continue
		}
		if entry.Kind == Folder && w.ignored(folder, entry) {
			continue
		}
		if cause := w.entry(folder, entry); cause != "" && !w.ignored(folder, entry) {
			return cause
		}
	}
	return ""
}

// show notes the hidden names that the ignore files among entries make ripgrep read.
func (w *walk) show(entries []Entry) {
	for _, entry := range entries {
		for _, name := range entry.Shows {
			switch {
			case !w.shown:
			case name == "*":
				w.hidden = true
			case !slices.Contains(w.shows, name):
				w.shows = append(w.shows, name)
			}
		}
	}
}

func (w *walk) skipsHidden(name string) bool {
	return !w.hidden && strings.HasPrefix(name, ".") && !slices.Contains(w.shows, strings.ToLower(name))
}

// ignored reports whether an ignore file keeps a name from being read.
func (w *walk) ignored(folder string, entry Entry) bool {
	switch {
	case !w.ignores || w.ask.Ignored == nil:
		return false
	case w.named && (entry.Kind != Folder || w.only == nil || slices.ContainsFunc(w.only, func(pattern string) bool { return glob(pattern, entry.Name) })):
		return false
	}
	return w.ask.Ignored(path.Join(folder, entry.Name), entry.Kind == Folder)
}

func (w *walk) entry(folder string, entry Entry) string {
	at := place{lexical: path.Join(folder, entry.Name)}
	at.real = at.lexical
	switch entry.Kind {
	case Link:
		if !w.follow {
			return ""
		}
		var ok bool
		if at.real, ok = w.ask.resolve(at.lexical); !ok || !within(w.ask.Root, at.real) {
			return quotedPath(at.lexical) + " leads outside the workspace"
		}
	case File:
		if w.only != nil && !slices.ContainsFunc(w.only, func(pattern string) bool { return glob(pattern, entry.Name) }) {
			return ""
		}
	}
	cause := w.file(at, entry.Plain)
	if cause == "" && entry.Kind != File {
		cause = w.folder(at.real)
	}
	return cause
}

// file says why one file, or a folder by its name, is not read without a person.
func (w *walk) file(at place, plain bool) string {
	if !w.rulesOnly && !plain {
		if cause := w.ask.mayRead(at); cause != "" {
			return cause
		}
	}
	if len(w.rules) == 0 {
		return ""
	}
	low := w.ask.lower(at)
	for _, r := range w.rules {
		if r.keeps(low) {
			return quotedPath(at.lexical) + " is protected by a rule: " + r.String()
		}
	}
	return ""
}
