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
	Writable  []string // absolute; further directories that may be written
	NoLinks   []string // those of Workspace and Expose in which the kernel follows no symbolic link, as far as the level can do that
	Aliases   []string // absolute paths that lead to one of these through symlinks

	// Lasting is for a program that runs for as long as the system does. It gets no stubs, because a person could not make
	// the missing files meanwhile. In return all of a protected name is read-only, also what commands may change in .git.
	Lasting bool
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
	p.NoLinks = slices.Clone(p.NoLinks)
	for i, dir := range p.NoLinks {
		if p.NoLinks[i], err = filepath.EvalSymlinks(dir); err != nil {
			return p, fmt.Errorf("open directory: %w", err)
		}
	}
	p.Writable = slices.Clone(p.Writable)
	for i, dir := range p.Writable {
		if p.Writable[i], err = filepath.EvalSymlinks(dir); err != nil {
			return p, fmt.Errorf("open writable directory: %w", err)
		}
	}
	for _, dir := range append([]string{p.Workspace, p.Home}, p.Writable...) {
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
	places := slices.Concat(system, p.Expose, p.Writable, []string{p.Workspace, p.Home})
	return slices.ContainsFunc(places, func(dir string) bool { return within(dir, path) }) &&
		slices.ContainsFunc(places, func(dir string) bool { return within(dir, real) })
}

// symlink is a symbolic link and what it contains.
type symlink struct{ path, target string }

// symlinks returns the symbolic links by which the aliases lead to their files, but for those in directories that are shown.
func (p Place) symlinks() (links []symlink) {
	shown := slices.Concat(system, p.Expose, p.Writable, []string{p.Workspace, p.Home})
	for _, alias := range p.Aliases {
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
	return slices.ContainsFunc(slices.Concat(system, expose), func(dir string) bool { return within(dir, path) })
}

// within compares by path component; both are clean.
func within(dir, path string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
