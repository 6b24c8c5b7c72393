package files

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/policy/program"
)

// Walk checks the files below folders.
type Walk struct {
	program.Tree
	Workspace     Workspace
	Protected     func(Location) (cause string) // why a rule protects a location; nil for no rule
	Most          int                           // limit of checked names
	SkipsIgnored  bool                          // skips the names in ignore files
	OnlyOverrides bool                          // reads a name that matches Only even if an ignore file names it

	left  int
	seen  map[string]bool
	shows map[string]bool // hidden names that are read
}

// From returns why only a person may allow the command to read its folders, if it starts in a folder.
func (w *Walk) From(folder string) (cause string) {
	w.start()
	if w.Tracked {
		return w.trackedCause(folder)
	}
	for _, name := range w.Folders {
		at, cause := w.Workspace.Locate(folder, name)
		if cause == "" && !Within(w.Workspace.Root, at.Real) {
			continue // not a folder of the workspace; its arguments were checked already
		}
		for dir := at.Real; cause == "" && w.Shown && !w.Hidden && dir != w.Workspace.Root; {
			dir = path.Dir(dir)
			entries, _ := w.Workspace.Entries(dir, w.left+1)
			w.addShown(entries)
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

// trackedCause checks the files that git tracks, or the whole workspace if they are unknown.
func (w *Walk) trackedCause(folder string) string {
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
		if !w.Workspace.Budget.spend(1 + len(limits)) {
			return TooLong
		}
		if len(limits) < len(w.Folders) || len(limits) == 0 || slices.ContainsFunc(limits, func(limit string) bool {
			return Within(limit, p)
		}) {
			if cause := w.fileCause(Location{p, p}, false); cause != "" {
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

// Folder returns why only a person may allow reading the files below a folder.
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
	w.addShown(entries)
	for _, entry := range entries {
		if !w.Workspace.Budget.spend(1) {
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
		if cause := w.entryCause(folder, entry); cause != "" && !w.ignored(folder, entry) {
			return cause
		}
	}
	return ""
}

// addShown adds the hidden names that ignore files make ripgrep read.
func (w *Walk) addShown(entries []Entry) {
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

// ignored reports whether an ignore file makes the command skip a name.
func (w *Walk) ignored(folder string, entry Entry) bool {
	switch {
	case !w.SkipsIgnored || w.Workspace.Ignored == nil:
		return false
	case w.OnlyOverrides && (entry.Kind != Folder || w.Reads(entry.Name)):
		return false
	}
	return w.Workspace.Ignored(path.Join(folder, entry.Name), entry.Kind == Folder, w.Workspace.Budget.spend)
}

func (w *Walk) entryCause(folder string, entry Entry) string {
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
	cause := w.fileCause(at, entry.Plain)
	if cause == "" && entry.Kind != File {
		cause = w.Folder(at.Real)
	}
	return cause
}

// fileCause returns why only a person may allow reading one file, or a folder with this name.
func (w *Walk) fileCause(at Location, plain bool) string {
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
