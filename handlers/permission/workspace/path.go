// Package workspace looks at the files that a permission request is about, at the time of a decision: where a path
// leads, what a folder holds, what git tracks and ripgrep ignores, and whether a file changed since.
//
// Promises: it only reads, it runs no program, and it blocks on no FIFO. What it cannot find out it reports as
// unknown, so that the policy asks.
//
// It must not know rules, decisions or the log.
package workspace

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
)

// locate finds the file a pattern means. OpenCode writes it relative to its worktree: the directory, the git repository
// around it, or / outside of one. That is taken which exists; when several do, none is.
func locate(directory, pattern string) (path string, ok bool) {
	if filepath.IsAbs(pattern) {
		return pattern, true
	}
	var is string
	for root := directory; ; root = filepath.Dir(root) {
		here := filepath.Join(root, pattern)
		if real, err := filepath.EvalSymlinks(here); err == nil {
			if ok && is != real {
				return "", false
			}
			if !ok {
				path, is, ok = here, real, true
			}
		}
		if root == filepath.Dir(root) {
			return path, ok
		}
	}
}

// RealPath returns a path with its symlinks resolved. Parts that do not exist are appended as they are. A broken link
// resolves to its target, because a write to the link creates a file there.
func RealPath(path string) (real string, ok bool) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", false
	}
	const most = 40 // as many links as Linux follows
	at, rest := "/", strings.Split(filepath.Clean(path), "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		target, err := os.Readlink(next)
		switch {
		case err == nil && (links == most || next == "/proc" || strings.HasPrefix(next, "/proc/")):
			return "", false // links in /proc lead elsewhere in another process
		case err == nil:
			links++
			rest = append(strings.Split(target, "/"), rest...)
			if filepath.IsAbs(target) {
				at = "/"
			}
		case errors.Is(err, syscall.EINVAL): // it is no link
			at = next
		case errors.Is(err, fs.ErrNotExist) && !slices.Contains(rest, ".."):
			return filepath.Join(append([]string{next}, rest...)...), true
		default:
			return "", false
		}
	}
	return at, true
}

// Means reports whether a pattern of OpenCode stands for a path. OpenCode writes it relative to its worktree, which is
// the directory or one above it, and without dots.
func Means(directory, pattern, path string) bool {
	path = filepath.Clean(path)
	if filepath.IsAbs(pattern) {
		return filepath.Clean(pattern) == path
	}
	real, _ := RealPath(directory)
	for _, root := range []string{directory, real} {
		for root != "" {
			if filepath.Join(root, pattern) == path {
				return true
			}
			if root == filepath.Dir(root) {
				break
			}
			root = filepath.Dir(root)
		}
	}
	return false
}

// irregular returns what a path is when it is neither a regular file nor a directory.
func irregular(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	switch mode := info.Mode(); {
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode.IsRegular(), mode.IsDir():
		return ""
	}
	return "not a regular file"
}

// Input returns a request of a session that works in a directory, as the policy looks at it. The command of a request
// would run there.
func Input(a events.PermissionRequest, directory string) policy.Input {
	about := a.About()
	in := policy.Input{
		Type: a.Permission, Patterns: a.Patterns, Path: about.Filepath, URL: about.URL, Resolve: RealPath,
		List: ListFolder, Tracked: TrackedFiles, Irregular: irregular,
	}
	switch a.Permission {
	case events.KindBash:
		in.Command = about.Command
	case events.KindGrep, events.KindGlob:
		in.Path, in.Include = about.Folder, about.Include
	case events.KindLSP:
		in.Path = about.Lsp
	}
	in.Root, _ = RealPath(directory)
	in.Cwd, in.Ignored = in.Root, IgnoredBelow(in.Root)
	if paths := about.Patched(); a.Permission == events.KindEdit && len(paths) > 0 {
		in.Patterns, in.Path = paths, paths[0]
	}
	if len(a.Patterns) != 1 {
		return in
	}
	switch pattern := a.Patterns[0]; a.Permission {
	case events.KindRead, events.KindList:
		if in.Path == "" && in.Root != "" {
			in.Path, _ = locate(directory, pattern)
		}
	case events.KindEdit, events.KindWrite:
		in.Path = cmp.Or(in.Path, pattern)
	case events.KindWebfetch:
		in.URL = cmp.Or(in.URL, pattern)
	case events.KindNetwork:
		in.Address = pattern
	case events.KindMCP: // OpenCode asks under the tool's own name
		in.Tool = pattern
	}
	return in
}

// maxPatchLines is how many files of a patch a reason names.
const maxPatchLines = 20

// hiddenPart is what a person reads of a request that the log holds with [redacted] in place of a secret.
const hiddenPart = "A part of this request is hidden, because it holds a registered secret."

// patchLines says in one line per file what a patch of OpenCode's apply_patch does to it. It names files relative to
// root.
func patchLines(a events.PermissionRequest, root string, direct bool) (lines []string) {
	overwritten := func(path string) string {
		if _, err := os.Lstat(filepath.Clean(path)); direct || err != nil {
			return ""
		}
		return ", which exists and is overwritten"
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
func Note(a events.PermissionRequest, directory string, direct bool) string {
	var notes []string
	lines := patchLines(a, directory, direct)
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
