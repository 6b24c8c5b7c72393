package snapshots

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"pocketcoder/sandbox/realdir"
)

type Restored struct {
	// files of Copies.Changed, files that were changed after OpenCode had written them, and files below a symbolic link
	// or a file that is now in the place of a folder: these stay as they are now
	Kept   []string
	Copies string // directory with the earlier versions of files of the other kinds; empty if there are none
}

// Restore makes the files as Keep copied them under a name, and deletes the copies. Without copies it does nothing. It
// restores a file only if it still has the content that OpenCode wrote: a person may have changed it since, for example
// while PocketCoder did not run. The copy of such a file stays. If Restore fails for a file, it restores the others,
// and all copies stay.
func (s *Snapshots) Restore(ctx context.Context, name string) (r Restored, err error) {
	k, found, err := s.load(name)
	if err != nil || !found {
		return r, err
	}
	root, real, err := s.open()
	if err != nil {
		return r, err
	}
	defer root.Close()
	all, newer, err := s.divide(ctx, k.Files, keeper{root: root, dir: s.dirOf(name)}, real)
	if err != nil {
		return r, fmt.Errorf("%w; the copies are in %s", err, s.dirOf(name))
	}
	for _, absent := range []bool{true, false} { // first delete: a file may stand in the place of a directory
		for _, f := range all {
			if f.Absent != absent {
				continue
			}
			switch fault := f.restore(root, filepath.Join(s.dirOf(name), f.Copy)); {
			case errors.Is(fault, realdir.ErrNotDirectory): // another try would find the same
				newer = append(newer, f)
			case fault != nil:
				err = errors.Join(err, fmt.Errorf("restore %s: %w", f.Name, fault))
			}
		}
	}
	if err != nil {
		return r, fmt.Errorf("%w; the copies are in %s", err, s.dirOf(name))
	}
	r.Kept = slices.Clone(k.Changed)
	for _, f := range newer {
		r.Kept = append(r.Kept, filepath.Join(real, f.File))
		if !f.Absent {
			r.Copies = s.dirOf(name)
		}
	}
	slices.Sort(r.Kept)
	r.Kept = slices.Compact(r.Kept)
	if r.Copies == "" {
		return r, s.Discard(name)
	}
	return r, s.store(name, keptFiles{Changed: k.Changed, Files: newer}, k)
}

// divide returns those of the kept files that are to be restored, and those that were changed later. It returns no file
// that already is as it was kept.
func (s *Snapshots) divide(ctx context.Context, files []keptFile, r keeper, real string) (all, newer []keptFile,
	err error) {
	written := map[string][]string{} // paths, by the snapshot
	different := map[string]bool{}   // File, of those that are not as they were kept
	isMade := map[string]bool{}
	unknown := map[string]bool{} // File, of those that an interrupted Restore does not explain
	for _, f := range files {
		same, err := r.isKept(f)
		if err != nil {
			return nil, nil, err
		}
		gone, err := isGone(r.root, f.Name)
		if err != nil {
			return nil, nil, err
		}
		different[f.File] = different[f.File] || !same
		unknown[f.File] = unknown[f.File] || !same && (f.Name == f.File || !gone)
		if f.Left != "" {
			state, err := stateOf(r.root, f.File)
			if err != nil {
				return nil, nil, err
			}
			isMade[f.File] = state == f.Left
		}
		for _, snapshot := range f.Written {
			if path := filepath.Join(real, f.File); !slices.Contains(written[snapshot], path) {
				written[snapshot] = append(written[snapshot], path)
			}
		}
	}
	for snapshot, paths := range written {
		made, err := s.made(ctx, snapshot, paths, r.root, real)
		if err != nil {
			return nil, nil, err
		}
		for _, path := range made {
			isMade[localTo(real, path)] = true
		}
	}
	for _, f := range files {
		switch {
		case !different[f.File]:
		case isMade[f.File] || !unknown[f.File]:
			all = append(all, f)
		default:
			newer = append(newer, f)
		}
	}
	return all, newer, nil
}

// made returns the files that have the content that OpenCode restores from a snapshot. OpenCode deletes a file that the
// snapshot lacks, and every file if the snapshot is unknown.
func (s *Snapshots) made(ctx context.Context, snapshot string, files []string, root *os.Root,
	real string) (all []string, err error) {
	_, found, err := s.find(ctx, snapshot)
	if err != nil {
		return nil, err
	}
	var differing []string
	if found {
		if differing, err = s.Differing(ctx, snapshot, files); err != nil {
			return nil, err
		}
	}
	for _, file := range files {
		same := found && !slices.Contains(differing, file)
		if !found {
			state, err := stateOf(root, localTo(real, file))
			if err != nil {
				return nil, err
			}
			same = state == absent
		}
		if same {
			all = append(all, file)
		}
	}
	return all, nil
}

// ChangedSince returns those of the files that differ from their state at the first Keep under a name. A file that was
// not in Copies.Seen then is none of them.
func (s *Snapshots) ChangedSince(name string, files []string) (all []string, err error) {
	k, found, err := s.load(name)
	if err != nil || !found {
		return nil, err
	}
	root, real, err := s.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for _, file := range files {
		seen, found := k.Seen[localTo(real, file)]
		if !found {
			continue
		}
		now, err := stateOf(root, localTo(real, file))
		if err != nil {
			return nil, err
		}
		if now != seen {
			all = append(all, file)
		}
	}
	return all, nil
}

// absent is the state of no file.
const absent = "absent"

// stateOf returns what is in the place of a file. It is equal only for equal contents, modes and types.
func stateOf(root *os.Root, name string) (string, error) {
	if above, err := notDirectoryAbove(root, name); above != "" || err != nil {
		return absent, err
	}
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return absent, nil
	case err != nil:
		return "", err
	case info.Mode().Type() == fs.ModeSymlink:
		target, err := root.Readlink(name)
		return "link " + target, err
	case !info.Mode().IsRegular():
		return info.Mode().Type().String(), nil
	}
	f, _, err := realdir.OpenFile(root, name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return fmt.Sprintf("%s %x", info.Mode(), h.Sum(nil)), err
}

// isGone reports whether there is no file, but perhaps a directory.
func isGone(root *os.Root, name string) (bool, error) {
	above, err := notDirectoryAbove(root, name)
	if above != "" || err != nil {
		return above != "", err
	}
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return err == nil && info.IsDir(), err
}

// isKept reports whether a file is as it was kept.
func (r keeper) isKept(f keptFile) (bool, error) {
	gone, err := isGone(r.root, f.Name)
	if gone || f.Absent || err != nil {
		return gone && f.Absent, err
	}
	info, err := r.root.Lstat(f.Name)
	switch {
	case err != nil:
		return false, err
	case info.Mode() != f.Mode:
		return false, nil
	case f.Link != "":
		target, err := r.root.Readlink(f.Name)
		return target == f.Link, err
	}
	return r.isCopy(f)
}

func (k keptFile) restore(root *os.Root, path string) error {
	if k.Absent {
		return k.remove(root)
	}
	dir, err := realdir.OpenParent(root, k.Name, true)
	if err != nil {
		return err
	}
	defer dir.Close()
	name := filepath.Base(k.Name)
	part := name + ".pocketcoder-part"
	if err := dir.RemoveAll(part); err != nil {
		return err
	}
	if k.Link != "" {
		if err := dir.Symlink(k.Link, part); err != nil {
			return err
		}
	} else if err := copyInto(dir, part, k.Mode.Perm(), path); err != nil {
		return err
	}
	if err := removeEmpty(dir, name); err != nil {
		return errors.Join(err, dir.Remove(part))
	}
	return dir.Rename(part, name)
}

// remove deletes the file if there is one.
func (k keptFile) remove(root *os.Root) error {
	if above, err := notDirectoryAbove(root, k.Name); above != "" || err != nil {
		return err
	}
	dir, err := realdir.OpenParent(root, k.Name, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	name := filepath.Base(k.Name)
	info, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
		return nil
	}
	if err == nil {
		err = dir.Remove(name)
	}
	return err
}

// removeEmpty deletes a directory that has no file, in the place of a file.
func removeEmpty(parent *os.Root, name string) error {
	if info, err := parent.Lstat(name); err != nil || !info.IsDir() {
		return nil // Rename reports what is wrong
	}
	dir, err := realdir.Open(parent, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = fs.WalkDir(dir.FS(), ".", func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			err = errors.New("a directory with files is in its place")
		}
		return err
	})
	if err != nil {
		return err
	}
	entries, err := fs.ReadDir(dir.FS(), ".")
	for _, e := range entries {
		err = errors.Join(err, removeEmpty(dir, e.Name()))
	}
	return errors.Join(err, parent.Remove(name))
}

func copyInto(root *os.Root, name string, mode fs.FileMode, path string) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Chmod(mode), to.Sync(), to.Close())
}
