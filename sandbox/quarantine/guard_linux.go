package quarantine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/isolation/protection"
	"pocketcoder/sandbox/realdir"
)

// guard is a protected name that is put back when it changes.
type guard struct {
	parent *guard // of its directory; nil for the top directory
	name   string
	path   string // relative to the workspace
	want   *file  // nil if nothing may have the name
	// it is the directory of linked worktrees, or in it
	worktrees bool
	// it is guarded until these commands have ended; nil for as long as any command runs
	sessions []*Session

	// dir is set if commands may change the other files of this directory. It stays open, so that a directory that was
	// moved away is found. Of a directory of linked worktrees, only lists the names that it may hold.
	dir  *os.Root
	only []string
}

// root returns the directory in which the name is.
func (q *Quarantine) root(g *guard) *os.Root {
	if g == nil {
		return q.top
	}
	return g.dir
}

// guard guards the names of a directory, and what is missing in a git directory.
func (q *Quarantine) guard(parent *guard, dir string, names []protection.Name, w *protection.Workspace) error {
	root := q.root(parent)
	for _, n := range names {
		g := &guard{parent: parent, name: n.Path, path: path.Join(dir, n.Path),
			worktrees: n.Worktrees || parent != nil && parent.worktrees}
		info, err := root.Lstat(n.Path)
		switch {
		case parent == nil && (err != nil || q.untaken[n.Path]): // it is taken when it appears
			continue
		case err != nil:
		case info.IsDir() && (n.Children != nil || n.Worktrees):
			if err := q.guardDirectory(g, n, w); err != nil {
				return err
			}
			continue
		default:
			if err := q.remember(g); err != nil {
				return err
			}
		}
		q.guards = append(q.guards, g)
	}
	return nil
}

// guardDirectory guards names in a directory. Commands may change its other files.
func (q *Quarantine) guardDirectory(g *guard, n protection.Name, w *protection.Workspace) (err error) {
	if g.dir, err = realdir.Open(q.root(g.parent), n.Path); err != nil {
		return fmt.Errorf("guard %s: %w", g.path, err)
	}
	q.guards = append(q.guards, g)
	if err := q.watchDirectory(g); err != nil {
		return err
	}
	names := w.ChildrenOf(n, filepath.Join(w.Dir, g.path))
	if n.Worktrees {
		present, err := list(g.dir, ".")
		if err != nil {
			return err
		}
		g.only = append([]string{}, present...)
		for _, name := range present {
			if !slices.ContainsFunc(names, func(linked protection.Name) bool { return linked.Path == name }) {
				names = append(names, protection.Name{Path: name})
			}
		}
	}
	return q.guard(g, g.path, names, w)
}

// remember reads the file of a guard, unless an earlier copy has the same content.
func (q *Quarantine) remember(g *guard) (err error) {
	root := q.root(g.parent)
	g.want = q.copies[g.path]
	if q.lost[g.path] { // check puts it back
		return nil
	}
	if g.want == nil || !g.want.isAt(root, g.name, false) {
		if g.want, err = readAll(root, g.name); err != nil {
			return fmt.Errorf("%s cannot be protected without bubblewrap: %w", g.path, err)
		}
		q.copies[g.path] = g.want
	}
	if g.want.mode.IsDir() {
		if dir, err := realdir.Open(root, g.name); err == nil {
			defer dir.Close()
			_, err = q.watch.add(dir)
			return err
		}
	}
	return nil
}

// guardWorktrees guards the worktrees that a command of PocketCoder has left.
func (q *Quarantine) guardWorktrees() {
	at := slices.IndexFunc(q.guards, func(g *guard) bool { return g.worktrees })
	if at < 0 || q.isManaged() {
		return
	}
	g := q.guards[at]
	q.guards = slices.DeleteFunc(q.guards, func(g *guard) bool {
		if g.worktrees && g.dir != nil {
			g.dir.Close()
		}
		return g.worktrees
	})
	names := []protection.Name{{Path: g.name, Worktrees: true}}
	if q.guard(g.parent, path.Dir(g.path), names, &protection.Workspace{Dir: q.Workspace}) != nil {
		q.last().Stop()
	}
}

// isManaged reports whether a command manages worktrees.
func (q *Quarantine) isManaged() bool {
	return slices.ContainsFunc(q.sessions, func(s *Session) bool { return s.ManagesWorktrees })
}

// guardExpected guards the names whose creation was expected.
func (q *Quarantine) guardExpected() {
	for name, until := range q.expected {
		if time.Now().Before(until) {
			continue
		}
		delete(q.expected, name)
		if f, err := readAll(q.top, name); err == nil {
			q.known[name] = true
			q.guardForNow(name, f)
		}
	}
}

// guardForNow guards a new name in the top directory until the commands that run have ended. Later ones have a mount on
// it, or the guard of an existing name.
func (q *Quarantine) guardForNow(name string, want *file) {
	q.guards = append(q.guards, &guard{name: name, path: name, want: want, sessions: slices.Clone(q.sessions)})
}

// check puts back what has changed. With trustStamps it takes less time and misses some changes by a memory map.
func (q *Quarantine) check(trustStamps bool) {
	managed := len(q.guards) > 0 && q.isManaged()
	var changed []*guard
	for _, g := range q.guards {
		if !(managed && g.worktrees) && !q.isUnchanged(g, trustStamps) {
			changed = append(changed, g)
			q.putBack(g)
		}
	}
	s, counts := q.last(), false
	for _, g := range changed {
		// a person may have changed a name that was kept
		counts = counts || g.sessions == nil
		if q.lost[g.path] = !q.isUnchanged(g, false); q.lost[g.path] {
			s.note(fmt.Sprintf("pocketcoder: %s was changed and could not be put back", g.path))
			continue
		}
		s.note(fmt.Sprintf("pocketcoder: %s was put back: a command cannot change it", g.path))
	}
	if !counts {
		return
	}
	if s.backs++; s.backs == maxBacks+1 {
		s.Stop()
	}
}

func (q *Quarantine) isUnchanged(g *guard, trustStamps bool) bool {
	root := q.root(g.parent)
	if g.dir == nil && g.want != nil {
		return g.want.isAt(root, g.name, trustStamps)
	}
	now, err := root.Lstat(g.name)
	if g.dir == nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	if err != nil {
		return false
	}
	held, err := g.dir.Stat(".")
	return err == nil && os.SameFile(now, held) && len(q.added(g)) == 0
}

// added returns the names that a directory of linked worktrees may not hold.
func (q *Quarantine) added(g *guard) []string {
	if g.only == nil {
		return nil
	}
	names, _ := list(g.dir, ".")
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(g.only, name) })
}

// putBack undoes the change of a name.
func (q *Quarantine) putBack(g *guard) {
	root := q.root(g.parent)
	switch {
	case g.dir != nil:
		q.putBackDirectory(root, g)
	case g.want == nil:
		q.moveAside(root, g.name, g.path)
	default:
		temp := hidden(rand.Text())
		err := g.want.write(root, temp)
		if errors.Is(err, fs.ErrPermission) {
			makeWritable(root, ".")
			err = g.want.write(root, temp)
		}
		if err == nil {
			q.replace(root, g.name, g.path, func() error { return renameToFree(root, temp, g.name) })
		}
		root.RemoveAll(temp)
	}
}

// moveAside sets a changed file aside. If it is in the workspace still, the next report moves it to the quarantine.
func (q *Quarantine) moveAside(root *os.Root, name, path string) {
	if a, err := q.setAside(root, name, path); err == nil && a != nil {
		q.asides = append(q.asides, *a)
	}
}

// replace sets aside what has a name in root, and calls rename, which gives the name to another file. A command may
// create the name again meanwhile.
func (q *Quarantine) replace(root *os.Root, name, path string, rename func() error) {
	for range maxTakes {
		if q.moveAside(root, name, path); rename() == nil {
			return
		}
	}
}

// renameToFree renames a file in root. It fails if the new name is not free.
func renameToFree(root *os.Root, from, to string) error {
	return withDescriptor(root, func(fd int) error {
		return unix.Renameat2(fd, from, fd, to, unix.RENAME_NOREPLACE)
	})
}

// putBackDirectory moves a directory back that was moved within the workspace, or makes it again. Its guards, which
// follow, put back what it must hold.
func (q *Quarantine) putBackDirectory(root *os.Root, g *guard) {
	for _, name := range q.added(g) {
		q.moveAside(g.dir, name, path.Join(g.path, name))
	}
	now, err := root.Lstat(g.name)
	held, e := g.dir.Stat(".")
	if err == nil && e == nil && os.SameFile(now, held) {
		return
	}
	if at, err := pathOf(g.dir); err == nil {
		if rel, err := filepath.Rel(q.Workspace, at); err == nil && filepath.IsLocal(rel) {
			// a folder replaces no folder with files, and no file
			q.replace(root, g.name, g.path, func() error { return q.top.Rename(rel, g.path) })
		}
	}
	dir, err := realdir.Open(root, g.name)
	if err != nil {
		q.moveAside(root, g.name, g.path)
		if root.Mkdir(g.name, 0o755) != nil {
			return
		}
		if dir, err = realdir.Open(root, g.name); err != nil {
			return
		}
	}
	g.dir.Close()
	g.dir = dir
	q.watchDirectory(g)
}

func (q *Quarantine) watchDirectory(g *guard) error {
	wd, err := q.watch.add(g.dir)
	if err == nil {
		q.directories[wd] = g
	}
	return err
}

// concernsGuard reports whether an event may be about a guarded name. Git creates many other files in its directory.
func (q *Quarantine) concernsGuard(e event) bool {
	d := q.directories[e.directory]
	return d == nil || d.only != nil || e.name == "" || slices.ContainsFunc(q.guards, func(g *guard) bool {
		return g.parent == d && g.name == e.name
	})
}

// pathOf returns the path that an open directory has now.
func pathOf(dir *os.Root) (at string, err error) {
	err = withDescriptor(dir, func(fd int) error {
		at, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if strings.HasSuffix(at, " (deleted)") {
			return fs.ErrNotExist
		}
		return err
	})
	return at, err
}
