package workspace

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"pocketcoder/events"
)

// maxPatchLines is how many files of a patch a reason names.
const maxPatchLines = 20

// hiddenPart is what a person reads of a request that the log holds with [redacted] in place of a secret.
const hiddenPart = "A part of this request is hidden, because it holds a registered secret."

// PatchLines says in one line per file what a patch of OpenCode's apply_patch does to it, by the files that its
// metadata name. It names files relative to root. exists reports whether there is a file. PatchLines returns nil when
// the metadata name no files.
func PatchLines(a events.PermissionAsk, root string, exists func(path string) bool) (lines []string) {
	overwritten := func(path string) string {
		if exists(path) {
			return ", which exists and is overwritten"
		}
		return ""
	}
	name := func(path string) string { return inline(fromRoot(root, path)) }
	for _, f := range a.About().Files {
		switch {
		case f.MovePath != "":
			lines = append(lines, "Move "+name(f.FilePath)+" to "+name(f.MovePath)+overwritten(f.MovePath))
		case f.Type == "delete":
			lines = append(lines, "Delete "+name(f.FilePath))
		case f.Type == "add":
			lines = append(lines, "Add "+name(f.FilePath)+overwritten(f.FilePath))
		default:
			lines = append(lines, "Change "+name(f.FilePath))
		}
	}
	return lines
}

// fromRoot returns a path relative to a directory that holds it, any other path as it is.
func fromRoot(root, path string) string {
	if rest, inside := strings.CutPrefix(path, strings.TrimSuffix(root, "/")+"/"); root != "" && inside {
		return rest
	}
	return path
}

// inline returns a text in which no character breaks the line or reorders it.
func inline(text string) string {
	if quoted := strconv.QuoteToGraphic(text); len(quoted) != len(text)+2 {
		return quoted
	}
	return text
}

// Note returns what a person must read of a request before anything else: what a patch does that its diff does not
// show, and that a part is hidden. It returns "" when there is nothing of the kind.
//
// What is requested over the API is not looked up on disk.
func Note(a events.PermissionAsk, directory string, direct bool) string {
	var notes []string
	lines := PatchLines(a, directory, func(path string) bool {
		_, err := os.Lstat(filepath.Clean(path))
		return !direct && err == nil
	})
	if len(lines) > 1 || len(lines) == 1 && !strings.HasPrefix(lines[0], "Change ") {
		if more := len(lines) - maxPatchLines; more > 0 {
			lines = append(lines[:maxPatchLines], strconv.Itoa(more)+" more files")
		}
		notes = append(notes, strings.Join(lines, "; ")+".")
	}
	if a.Redacted() {
		notes = append(notes, hiddenPart)
	}
	return strings.Join(notes, " ")
}
