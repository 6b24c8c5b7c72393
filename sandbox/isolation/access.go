package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// system are the directories with the machine's programs, which every command may read. Those that are missing are left
// out; on most systems half of them are links to the others.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/etc"}

// Place is what commands may use of the machine besides its programs.
type FileAccess struct {
	Workspace  string   // absolute, symlinks resolved; writable
	Home       string   // absolute; writable
	Expose     []string // directories that may be read
	Writable   []string // absolute; further directories that may be written
	NoSymlinks []string // those of Workspace and Expose in which the kernel follows no symbolic link, as far as the level can do that
	Aliases    []string // absolute paths that lead to one of these through symlinks

	// Lasting is for a program that runs for as long as the system does. It gets no stubs, because a person could not make
	// the missing files meanwhile. In return all of a protected name is read-only, also what commands may change in .git.
	LongRunning bool
}

// Expose is the Op of the os.PathError for a directory that may not be exposed.
const ExposeOp = "expose"

// check returns the place with all symlinks resolved.
func (access FileAccess) resolve() (FileAccess, error) {
	expose := access.Expose
	access.Expose = nil
	for _, dir := range expose {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return access, fmt.Errorf("expose: %w", err)
		}
		info, err := os.Stat(real)
		if err != nil {
			return access, fmt.Errorf("expose: %w", err)
		}
		if !filepath.IsAbs(dir) || !info.IsDir() {
			return access, fmt.Errorf("expose %s: not an absolute path of a directory", dir)
		}
		if real == "/" || within("/proc", real) || within("/dev", real) || within("/run", real) {
			return access, &os.PathError{Op: ExposeOp, Path: dir, Err: errors.New("it holds what commands must not reach; expose a directory with files")}
		}
		access.Expose = append(access.Expose, real)
	}
	var err error
	if access.Home, err = filepath.EvalSymlinks(access.Home); err != nil {
		return access, fmt.Errorf("open home: %w", err)
	}
	access.NoSymlinks = slices.Clone(access.NoSymlinks)
	for i, dir := range access.NoSymlinks {
		if access.NoSymlinks[i], err = filepath.EvalSymlinks(dir); err != nil {
			return access, fmt.Errorf("open directory: %w", err)
		}
	}
	access.Writable = slices.Clone(access.Writable)
	for i, dir := range access.Writable {
		if access.Writable[i], err = filepath.EvalSymlinks(dir); err != nil {
			return access, fmt.Errorf("open writable directory: %w", err)
		}
	}
	for _, dir := range append([]string{access.Workspace, access.Home}, access.Writable...) {
		if i := slices.IndexFunc(append(systemDirs, "/proc", "/dev"), func(s string) bool { return within(dir, s) || s != "/opt" && within(s, dir) }); i >= 0 {
			return access, fmt.Errorf("%s would be writable, and with it what belongs to the system; choose a directory elsewhere", dir)
		}
	}
	return access, nil
}

// reads says whether a command may read what lies at path, or would lie there. Neither the path nor what a symlink makes of
// it may be hidden.
func (access FileAccess) canRead(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	places := slices.Concat(systemDirs, access.Expose, access.Writable, []string{access.Workspace, access.Home})
	return slices.ContainsFunc(places, func(dir string) bool { return within(dir, path) }) &&
		slices.ContainsFunc(places, func(dir string) bool { return within(dir, real) })
}

// symlink is a symbolic link and what it contains.
type symlink struct{ path, target string }

// symlinks returns the symbolic links by which the aliases lead to their files, but for those in directories that are shown.
func (access FileAccess) aliasLinks() (links []symlink) {
	shown := slices.Concat(systemDirs, access.Expose, access.Writable, []string{access.Workspace, access.Home})
	for _, alias := range access.Aliases {
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

// Visible says whether all commands see what lies at path, an absolute one without symlinks, when these directories are
// exposed: nothing may be kept there that is none of their business.
func Visible(path string, expose []string) bool {
	return slices.ContainsFunc(slices.Concat(systemDirs, expose), func(dir string) bool { return within(dir, path) })
}

// within compares by path component; both are clean.
func within(dir, path string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
