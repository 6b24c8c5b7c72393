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
var system = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/etc"}

// Place is what commands may use of the machine besides its programs.
type Place struct {
	Workspace string   // absolute, symlinks resolved; writable
	Home      string   // absolute; writable
	Expose    []string // directories that may be read
}

// Expose is the Op of the os.PathError for a directory that may not be exposed.
const Expose = "expose"

// check returns the place with all symlinks resolved.
func (p Place) check() (Place, error) {
	expose := p.Expose
	p.Expose = nil
	for _, dir := range expose {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return p, fmt.Errorf("expose: %w", err)
		}
		info, err := os.Stat(real)
		if err != nil {
			return p, fmt.Errorf("expose: %w", err)
		}
		if !filepath.IsAbs(dir) || !info.IsDir() {
			return p, fmt.Errorf("expose %s: not an absolute path of a directory", dir)
		}
		if real == "/" || within("/proc", real) || within("/dev", real) || within("/run", real) {
			return p, &os.PathError{Op: Expose, Path: dir, Err: errors.New("it holds what commands must not reach; expose a directory with files")}
		}
		p.Expose = append(p.Expose, real)
	}
	var err error
	if p.Home, err = filepath.EvalSymlinks(p.Home); err != nil {
		return p, fmt.Errorf("open home: %w", err)
	}
	for _, dir := range []string{p.Workspace, p.Home} {
		if i := slices.IndexFunc(append(system, "/proc", "/dev"), func(s string) bool { return within(dir, s) || s != "/opt" && within(s, dir) }); i >= 0 {
			return p, fmt.Errorf("%s would be writable, and with it what belongs to the system; choose a directory elsewhere", dir)
		}
	}
	return p, nil
}

// reads says whether a command may read what lies at path, or would lie there. Neither the path nor what a symlink makes of
// it may be hidden.
func (p Place) reads(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	places := slices.Concat(system, p.Expose, []string{p.Workspace, p.Home})
	return slices.ContainsFunc(places, func(dir string) bool { return within(dir, path) }) &&
		slices.ContainsFunc(places, func(dir string) bool { return within(dir, real) })
}

// Visible says whether all commands see what lies at path, an absolute one without symlinks, when these directories are
// exposed: nothing may be kept there that is none of their business.
func Visible(path string, expose []string) bool {
	return slices.ContainsFunc(slices.Concat(system, expose), func(dir string) bool { return within(dir, path) })
}

// within compares by path component; both are clean.
func within(dir, path string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
