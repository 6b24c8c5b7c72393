package quarantine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/isolation/protection"
	"pocketcoder/sandbox/wire"
)

// withDescriptor calls fn with a descriptor of a directory.
func withDescriptor(dir *os.Root, fn func(fd int) error) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	return fn(int(f.Fd()))
}

// move renames a file of root to an absolute path.
func move(root *os.Root, name, to string) error {
	return withDescriptor(root, func(fd int) error {
		err := unix.Renameat(fd, name, unix.AT_FDCWD, to)
		if errors.Is(err, unix.EACCES) {
			makeWritable(root, ".")
			makeWritable(root, name)
			err = unix.Renameat(fd, name, unix.AT_FDCWD, to)
		}
		return err
	})
}

// makeWritable lets this user change a folder. A command may have taken the right away.
func makeWritable(root *os.Root, name string) {
	if info, err := root.Lstat(name); err == nil && info.IsDir() {
		root.Chmod(name, info.Mode().Perm()|0o700)
	}
}

// removeAll removes a file, or a folder in which some folders cannot be written.
func removeAll(root *os.Root, name string) error {
	err := root.RemoveAll(name)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	makeAllWritable(root, name)
	return root.RemoveAll(name)
}

func makeAllWritable(root *os.Root, name string) {
	makeWritable(root, name)
	names, _ := list(root, name)
	for _, n := range names {
		if info, err := root.Lstat(path.Join(name, n)); err == nil && info.IsDir() {
			makeAllWritable(root, path.Join(name, n))
		}
	}
}

// aside is a file that was renamed in the workspace, because it could not be moved to the quarantine.
type aside struct {
	id   string
	name string // in the top directory
	path string // that it had in the workspace
}

// stays says where the file is.
func (a aside) stays(err error) error {
	return fmt.Errorf("%s is %s in the workspace now: %w", a.path, a.name, err)
}

// setAside moves a file that a person is not asked about out of the way. Each gets a directory of its own. If the
// quarantine is on another file system or full, setAside returns where the file is in the workspace.
func (q *Quarantine) setAside(root *os.Root, name, at string) (*aside, error) {
	id := rand.Text()
	to := filepath.Join(q.Dir, replacedDir, id, at)
	err := os.MkdirAll(filepath.Dir(to), 0o700)
	if err == nil {
		err = move(root, name, to)
	}
	if err == nil {
		return nil, nil
	}
	for dir := filepath.Dir(to); dir != filepath.Join(q.Dir, replacedDir) && os.Remove(dir) == nil; {
		dir = filepath.Dir(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if _, gone := root.Lstat(name); gone != nil {
			return nil, nil
		}
	}
	a := &aside{id, path.Base(at) + ".moved-by-pocketcoder-" + id, at}
	err = q.withTop(func(top *os.Root) error {
		return withDescriptor(root, func(from int) error {
			return withDescriptor(top, func(to int) error { return unix.Renameat(from, name, to, a.name) })
		})
	})
	if errors.Is(err, unix.EXDEV) && path.Dir(at) != "." { // a directory that is a mount
		return nil, root.Rename(name, a.name)
	}
	return a, err
}

func (q *Quarantine) withTop(fn func(top *os.Root) error) error {
	top, err := os.OpenRoot(q.Workspace)
	if err != nil {
		return err
	}
	defer top.Close()
	return fn(top)
}

// stowAside moves a file that was set aside in the workspace to the quarantine.
func (q *Quarantine) stowAside(a aside) error {
	dir := filepath.Join(q.Dir, replacedDir, a.id)
	err := os.MkdirAll(filepath.Dir(filepath.Join(dir, a.path)), 0o700)
	if err == nil {
		err = q.withTop(func(top *os.Root) error { return copyAway(top, a.name, dir, a.path) })
	}
	if err != nil {
		os.RemoveAll(dir) // an incomplete copy
		return err
	}
	return q.withTop(func(top *os.Root) error { return removeAll(top, a.name) })
}

// copyAway copies a file to a directory on another file system.
func copyAway(from *os.Root, name, dir, target string) error {
	to, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer to.Close()
	return copyTo(from, name, to, target)
}

// copyTo copies a file of any size. It leaves out special files.
func copyTo(from *os.Root, name string, to *os.Root, target string) error {
	info, err := from.Lstat(name)
	if err != nil {
		return err
	}
	switch info.Mode().Type() {
	case 0:
		err = copyRegular(from, name, to, target, info)
	case fs.ModeSymlink:
		var link string
		if link, err = from.Readlink(name); err == nil {
			err = to.Symlink(link, target)
		}
		return err
	case fs.ModeDir:
		var names []string
		if names, err = list(from, name); err != nil {
			return err
		}
		if err := to.Mkdir(target, 0o700); err != nil {
			return err
		}
		for _, n := range names {
			if err := copyTo(from, path.Join(name, n), to, path.Join(target, n)); err != nil {
				return err
			}
		}
		err = to.Chmod(target, info.Mode().Perm())
	default:
		return nil
	}
	return errors.Join(err, to.Chtimes(target, time.Time{}, info.ModTime()))
}

func copyRegular(from *os.Root, name string, to *os.Root, target string, info fs.FileInfo) error {
	source, err := openRegular(from, name, info)
	if err != nil {
		return err
	}
	defer source.Close()
	copied, err := to.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(copied, source)
	return errors.Join(err, copied.Chmod(info.Mode().Perm()), copied.Close())
}

// stow moves a hidden item to the quarantine, once nothing has changed it for a while. Commands and git see it until
// then.
func (q *Quarantine) stow(it *item) {
	it.mu.Lock()
	defer it.mu.Unlock()
	err := q.withTop(func(top *os.Root) error {
		if !isSettled(top, hidden(it.id)) {
			return errors.New("it changes")
		}
		at, err := os.OpenRoot(q.dir(it.id))
		if err != nil {
			return err
		}
		defer at.Close()
		err = copyTo(top, hidden(it.id), at, partFile)
		if err == nil {
			err = at.Rename(partFile, takenFile)
		}
		if err != nil {
			return errors.Join(err, at.RemoveAll(partFile))
		}
		return removeAll(top, hidden(it.id))
	})
	if err != nil {
		q.mu.Lock()
		it.stowAt = time.Now().Add(settleTime)
		q.mu.Unlock()
	}
}

// isSettled reports whether nothing has changed a file, or a file in a folder, for a while. Special files cannot be
// copied.
func isSettled(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	if err != nil || info.Mode().Type()&^(fs.ModeDir|fs.ModeSymlink) != 0 || time.Since(changed(info)) < settleTime {
		return false
	}
	if !info.IsDir() {
		return true
	}
	names, err := list(root, name)
	return err == nil && !slices.ContainsFunc(names, func(n string) bool { return !isSettled(root, path.Join(name, n)) })
}

// stowSettled stows hidden items.
func (q *Quarantine) stowSettled() {
	for _, it := range q.items {
		if !it.stowAt.IsZero() && time.Now().After(it.stowAt) {
			it.stowAt = time.Time{}
			go q.stow(it)
		}
	}
}

// locate opens the place of a taken item.
func (q *Quarantine) locate(it *item) (root *os.Root, name string, err error) {
	for dir, name := range map[string]string{q.dir(it.id): takenFile, q.Workspace: hidden(it.id)} {
		root, e := os.OpenRoot(dir)
		if e == nil {
			if _, e = root.Lstat(name); e == nil {
				return root, name, nil
			}
			root.Close()
		}
		if !errors.Is(e, fs.ErrNotExist) {
			err = e
		}
	}
	if err == nil {
		err = fs.ErrNotExist
	}
	return nil, "", err
}

// freeze replaces what was taken under one name by a copy that no process has open. The copy becomes the last of the
// items. The error says why it cannot be kept, and the notes say what else a person must know.
func (q *Quarantine) freeze(takes []*item) (described wire.Quarantined, notes []string, err error) {
	for _, it := range takes {
		it.mu.Lock()
		defer it.mu.Unlock()
	}
	last := takes[len(takes)-1]
	f, err := q.copyItem(last, takes)
	if err != nil {
		f = nil
	}
	for _, it := range takes {
		wasReplaced, failed := q.discard(it, f)
		switch {
		case failed != nil:
			notes = append(notes, fmt.Sprintf("pocketcoder: %v", failed))
		case wasReplaced && f != nil:
			notes = append(notes, fmt.Sprintf("pocketcoder: an earlier version of %s is in the directory %s of the quarantine",
				it.Name, replacedDir))
		}
		q.forget(it)
	}
	if err != nil {
		return wire.Quarantined{}, slices.Compact(notes), err
	}
	described = f.describe()
	described.ID, described.Name = last.id, last.Name
	return described, slices.Compact(notes), nil
}

// forget removes the directory of an item if no file of the item is left.
func (q *Quarantine) forget(it *item) {
	root, _, err := q.locate(it)
	if err == nil {
		root.Close()
		return
	}
	if errors.Is(err, fs.ErrNotExist) && !exists(filepath.Join(q.dir(it.id), itemFile)) {
		os.Remove(filepath.Join(q.dir(it.id), aboutFile))
		os.Remove(q.dir(it.id))
	}
}

// copyItem returns the item. If it does not exist yet, copyItem makes it of what was taken.
func (q *Quarantine) copyItem(last *item, takes []*item) (*file, error) {
	at, err := os.OpenRoot(q.dir(last.id))
	if err != nil {
		return nil, err
	}
	defer at.Close()
	f, err := readAll(at, itemFile)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	switch {
	case last.Name == ".git":
		return nil, errors.New("a command cannot create .git here; a person can, with git init")
	case last.Name == "commondir" || slices.Contains(protection.BareRepository, last.Name):
		return nil, errors.New("a command cannot make the workspace a repository")
	}
	b := &budget{maxBytes, maxFiles}
	for _, it := range takes {
		root, name, err := q.locate(it)
		if err != nil {
			return nil, err
		}
		taken, err := read(root, name, b)
		root.Close()
		if err != nil {
			return nil, err
		}
		if taken.isSpecial() {
			return nil, errSpecial
		}
		taken.prune()
		f = merge(f, taken)
	}
	err = errors.Join(at.RemoveAll(partFile), f.write(at, partFile))
	if err == nil {
		err = at.Rename(partFile, itemFile)
	}
	if err != nil {
		at.RemoveAll(partFile)
		return nil, err
	}
	return f, nil
}

// discard removes what was taken if f has all of it. Otherwise it sets it aside, and reports that.
func (q *Quarantine) discard(it *item, f *file) (wasReplaced bool, err error) {
	for {
		root, name, err := q.locate(it)
		if errors.Is(err, fs.ErrNotExist) {
			return wasReplaced, nil
		}
		if err != nil {
			return wasReplaced, fmt.Errorf("%s stays in the quarantine as %s: %w", it.Name, it.id, err)
		}
		part, err := readAll(root, name)
		if err == nil && f != nil && f.contains(part) {
			err = removeAll(root, name)
		} else {
			wasReplaced = true
			err = q.store(root, name, it.Name)
		}
		root.Close()
		if err != nil {
			return wasReplaced, err
		}
	}
}

// store moves a taken file to the directory for files that a person is not asked about.
func (q *Quarantine) store(root *os.Root, name, at string) error {
	a, err := q.setAside(root, name, at)
	if err != nil {
		return fmt.Errorf("%s stays in the quarantine: %w", at, err)
	}
	if a == nil {
		return nil
	}
	if err := q.stowAside(*a); err != nil {
		return a.stays(err)
	}
	return nil
}
