package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// systemDirs are the directories with the machine's programs. Every command can read them. Missing ones are skipped.
// On most systems half of them are links to the others.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/etc"}

// FileAccess lists the directories that commands can use in addition to the system's.
type FileAccess struct {
	Workspace string   // absolute, symlinks resolved; writable
	Home      string   // absolute; writable
	Expose    []string // directories to read
	Writable  []string // absolute; other directories to write
	// those of Workspace and Expose in which the kernel follows no symbolic link, if the level supports it
	NoSymlinks []string
	Aliases    []string // absolute paths that lead to one of these directories through symlinks

	// LongRunning is for a program that runs as long as the system. It has no placeholders, because they would prevent a
	// person from creating the missing files. In return a protected name is read-only as a whole, including the part of
	// .git that commands can change. At bwrap it runs under RunGuard.
	LongRunning bool
}

// ExposeOp is the Op of the os.PathError for a directory that may not be exposed.
const ExposeOp = "expose"

// resolve returns a with all symlinks resolved. It returns an error if a directory is not allowed.
func (a FileAccess) resolve() (FileAccess, error) {
	expose := a.Expose
	a.Expose = nil
	for _, dir := range expose {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return a, fmt.Errorf("expose: %w", err)
		}
		info, err := os.Stat(real)
		if err != nil {
			return a, fmt.Errorf("expose: %w", err)
		}
		if !filepath.IsAbs(dir) || !info.IsDir() {
			return a, fmt.Errorf("expose %s: not an absolute path of a directory", dir)
		}
		if real == "/" || within("/proc", real) || within("/dev", real) || within("/run", real) {
			return a, &os.PathError{Op: ExposeOp, Path: dir,
				Err: errors.New("it holds what commands must not reach; expose a directory with files")}
		}
		a.Expose = append(a.Expose, real)
	}
	var err error
	if a.Home, err = filepath.EvalSymlinks(a.Home); err != nil {
		return a, fmt.Errorf("open home: %w", err)
	}
	a.NoSymlinks = slices.Clone(a.NoSymlinks)
	for i, dir := range a.NoSymlinks {
		if a.NoSymlinks[i], err = filepath.EvalSymlinks(dir); err != nil {
			return a, fmt.Errorf("open directory: %w", err)
		}
	}
	a.Writable = slices.Clone(a.Writable)
	for i, dir := range a.Writable {
		if a.Writable[i], err = filepath.EvalSymlinks(dir); err != nil {
			return a, fmt.Errorf("open writable directory: %w", err)
		}
	}
	for _, dir := range append([]string{a.Workspace, a.Home}, a.Writable...) {
		if i := slices.IndexFunc(append(systemDirs, "/proc", "/dev"),
			func(s string) bool { return within(dir, s) || s != "/opt" && within(s, dir) }); i >= 0 {
			return a, fmt.Errorf("%s would be writable, and with it what belongs to the system; choose a directory elsewhere",
				dir)
		}
	}
	return a, nil
}

// canRead reports whether a command can read path. Both the path and the path with symlinks resolved must be
// readable. The file need not exist.
func (a FileAccess) canRead(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	places := slices.Concat(systemDirs, a.Expose, a.Writable, []string{a.Workspace, a.Home})
	return slices.ContainsFunc(places, func(dir string) bool { return within(dir, path) }) &&
		slices.ContainsFunc(places, func(dir string) bool { return within(dir, real) })
}

// symlink is a symbolic link and its target.
type symlink struct{ path, target string }

// aliasLinks returns the symbolic links that lead from Aliases to their files. It skips those in directories that
// commands can read.
func (a FileAccess) aliasLinks() (links []symlink) {
	shown := slices.Concat(systemDirs, a.Expose, a.Writable, []string{a.Workspace, a.Home})
	for _, alias := range a.Aliases {
		rest := strings.Split(strings.TrimPrefix(filepath.Clean(alias), "/"), "/")
		at := "/"
		for steps := 0; len(rest) > 0 && steps < 255; steps++ {
			at, rest = filepath.Join(at, rest[0]), rest[1:]
			target, err := os.Readlink(at)
			if err != nil {
				continue
			}
			isShown := slices.ContainsFunc(shown, func(dir string) bool { return within(dir, at) })
			if link := (symlink{at, target}); !isShown && !slices.Contains(links, link) {
				links = append(links, link)
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(at), target)
			}
			at, rest = "/", append(strings.Split(strings.TrimPrefix(filepath.Clean(target), "/"), "/"), rest...)
		}
	}
	return links
}

// Visible reports whether all commands can read path if the directories expose are exposed. The path is absolute,
// with symlinks resolved. Files that commands must not read may not be stored at such a path.
func Visible(path string, expose []string) bool {
	return slices.ContainsFunc(slices.Concat(systemDirs, expose), func(dir string) bool { return within(dir, path) })
}

// within reports whether path is dir or is below it. Both paths are clean.
func within(dir, path string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
