package files

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/policy/program"
)

// Walk looks at what lies below folders.
type Walk struct {
	program.Tree
	Workspace     Workspace
	Protected     func(Location) (cause string) // why a rule protects a place; nil when no rule does
	Most          int                           // names that it looks at before it gives up
	SkipsIgnored  bool                          // it skips what ignore files name
	OnlyOverrides bool                          // a name that only matches is read, also when an ignore file names it

	left  int
	seen  map[string]bool
	shows map[string]bool // hidden names that it reads all the same
}

// From returns why the command, started in a folder, may not read the folders it names without a person.
func (w *Walk) From(folder string) (cause string) {
	w.start()
	if w.Tracked {
		return w.index(folder)
	}
	for _, name := range w.Folders {
		at, cause := w.Workspace.Locate(folder, name)
		if cause == "" && !Within(w.Workspace.Root, at.Real) {
			continue // no folder of the workspace: its arguments were looked at already
		}
		for dir := at.Real; cause == "" && w.Shown && !w.Hidden && dir != w.Workspace.Root; {
			dir = path.Dir(dir)
			entries, _ := w.Workspace.Entries(dir, w.left+1)
			w.show(entries)
		}
		if cause == "" {
			cause = w.Folder(at.Real)
		}
		if cause != "" {
			return cause
		}
	}
	return ""
}

// index looks at what git tracks, or at the whole workspace where that is not known.
func (w *Walk) index(folder string) string {
	paths, known := w.Workspace.TrackedFiles(folder)
	if !known {
		return w.Folder(w.Workspace.Root)
	}
	var limits []string
	for _, name := range w.Folders {
		if at, cause := w.Workspace.Locate(folder, name); cause == "" {
			limits = append(limits, at.Lexical)
		}
	}
	for _, p := range paths {
		if !w.Workspace.Budget.Spend(1 + len(limits)) {
			return TooLong
		}
		if len(limits) < len(w.Folders) || len(limits) == 0 || slices.ContainsFunc(limits, func(limit string) bool {
			return Within(limit, p)
		}) {
			if cause := w.file(Location{p, p}, false); cause != "" {
				return cause
			}
		}
	}
	return ""
}

func (w *Walk) start() {
	if w.seen == nil {
		w.seen, w.shows, w.left = map[string]bool{}, map[string]bool{}, w.Most
	}
}

// Folder returns why one of the files below a folder may not be read without a person.
func (w *Walk) Folder(folder string) (cause string) {
	w.start()
	if w.seen[folder] {
		return ""
	}
	w.seen[folder] = true
	entries, ok := w.Workspace.Entries(folder, w.left+1)
	if !ok {
		return display.Quote(folder) + " cannot be listed"
	}
	w.show(entries)
	for _, entry := range entries {
		if !w.Workspace.Budget.Spend(1) {
			return TooLong
		}
		if w.left--; w.left < 0 {
			return fmt.Sprintf("there are more than %d files, too many to check for protected ones", w.Most)
		}
		if w.skipsHidden(entry.Name) || entry.Kind == Folder && slices.Contains(w.Skips, entry.Name) {
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
func (w *Walk) show(entries []Entry) {
	for _, entry := range entries {
		for _, name := range entry.Shows {
			switch {
			case !w.Shown:
			case name == "*":
				w.Hidden = true
			default:
				w.shows[name] = true
			}
		}
	}
}

func (w *Walk) skipsHidden(name string) bool {
	return !w.Hidden && strings.HasPrefix(name, ".") && !w.shows[strings.ToLower(name)]
}

// ignored reports whether an ignore file keeps a name from being read.
func (w *Walk) ignored(folder string, entry Entry) bool {
	switch {
	case !w.SkipsIgnored || w.Workspace.Ignored == nil:
		return false
	case w.OnlyOverrides && (entry.Kind != Folder || w.Reads(entry.Name)):
		return false
	}
	return w.Workspace.Ignored(path.Join(folder, entry.Name), entry.Kind == Folder, w.Workspace.Budget.Spend)
}

func (w *Walk) entry(folder string, entry Entry) string {
	at := Location{Lexical: path.Join(folder, entry.Name)}
	at.Real = at.Lexical
	switch entry.Kind {
	case Link:
		if !w.Follow {
			return ""
		}
		var ok bool
		if at.Real, ok = w.Workspace.resolve(at.Lexical); !ok || !Within(w.Workspace.Root, at.Real) {
			return display.QuotePath(at.Lexical) + " leads outside the workspace"
		}
	case File:
		if !w.Reads(entry.Name) {
			return ""
		}
	}
	cause := w.file(at, entry.Plain)
	if cause == "" && entry.Kind != File {
		cause = w.Folder(at.Real)
	}
	return cause
}

// file says why one file, or a folder by its name, is not read without a person.
func (w *Walk) file(at Location, plain bool) string {
	if !w.NoContent && !plain {
		if cause := w.Workspace.MayRead(at); cause != "" {
			return cause
		}
	}
	if w.Protected == nil {
		return ""
	}
	return w.Protected(at)
}
