package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// walk looks at what lies below folders.
type walk struct {
	tree
	workspace     workspace
	protected     func(place) (cause string) // why a rule protects a place; nil when no rule does
	most          int                        // names that it looks at before it gives up
	skipsIgnored  bool                       // it skips what ignore files name
	onlyOverrides bool                       // a name that only matches is read, also when an ignore file names it

	left  int
	seen  map[string]bool
	shows []string // hidden names that it reads all the same
}

// From returns why the command, started in a folder, may not read the folders it names without a person.
func (w *walk) From(folder string) (cause string) {
	w.start()
	if w.tracked {
		return w.index(folder)
	}
	for _, name := range w.folders {
		at, cause := w.workspace.locate(folder, name)
		if cause == "" && !within(w.workspace.root, at.real) {
			continue // no folder of the workspace: its arguments were looked at already
		}
		for dir := at.real; cause == "" && w.shown && !w.hidden && dir != w.workspace.root; {
			dir = path.Dir(dir)
			entries, _ := w.workspace.list(dir, w.left+1)
			w.show(entries)
		}
		if cause == "" {
			cause = w.Folder(at.real)
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
	if w.workspace.tracked != nil {
		paths, known = w.workspace.tracked(folder)
	}
	if !known {
		return w.Folder(w.workspace.root)
	}
	var limits []string
	for _, name := range w.folders {
		if at, cause := w.workspace.locate(folder, name); cause == "" {
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

func (w *walk) start() {
	if w.seen == nil {
		w.seen, w.left = map[string]bool{}, w.most
	}
}

// Folder returns why one of the files below a folder may not be read without a person.
func (w *walk) Folder(folder string) (cause string) {
	w.start()
	if w.seen[folder] {
		return ""
	}
	w.seen[folder] = true
	entries, ok := w.workspace.list(folder, w.left+1)
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
	case !w.skipsIgnored || w.workspace.ignored == nil:
		return false
	case w.onlyOverrides && (entry.Kind != Folder || w.reads(entry.Name)):
		return false
	}
	return w.workspace.ignored(path.Join(folder, entry.Name), entry.Kind == Folder)
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
		if at.real, ok = w.workspace.resolved(at.lexical); !ok || !within(w.workspace.root, at.real) {
			return quotedPath(at.lexical) + " leads outside the workspace"
		}
	case File:
		if !w.reads(entry.Name) {
			return ""
		}
	}
	cause := w.file(at, entry.Plain)
	if cause == "" && entry.Kind != File {
		cause = w.Folder(at.real)
	}
	return cause
}

// file says why one file, or a folder by its name, is not read without a person.
func (w *walk) file(at place, plain bool) string {
	if !w.noContent && !plain {
		if cause := w.workspace.mayRead(at); cause != "" {
			return cause
		}
	}
	if w.protected == nil {
		return ""
	}
	return w.protected(at)
}
