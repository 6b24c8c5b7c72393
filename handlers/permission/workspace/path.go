// Package workspace looks at the files that a permission request is about, at the time of a decision: where a path
// leads, what a folder holds, what git tracks and ripgrep ignores, and whether a file changed since.
//
// Promises: it only reads, it runs no program, and it blocks on no FIFO. What it cannot find out it reports as
// unknown, so that the policy asks.
//
// It must not know rules, decisions or the log.
package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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
