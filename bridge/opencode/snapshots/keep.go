package snapshots

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// keptFile is the state that Restore gives to a file. Name is relative to the workspace.
type keptFile struct {
	Name   string      `json:"name"`
	Mode   fs.FileMode `json:"mode"`
	Link   string      `json:"link,omitempty"` // target of a symbolic link
	Absent bool        `json:"absent,omitempty"`
}

const listFile = "files.json"

// Keep copies files as they are now, under a name, for Restore. The absent files are to be deleted then. A second Keep
// with the same name changes nothing. Files outside the workspace, and files that are neither regular nor symbolic
// links, are left out.
func (s *Snapshots) Keep(name string, files, absent []string) error {
	dir := filepath.Join(s.Kept, name)
	if _, err := os.Stat(filepath.Join(dir, listFile)); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, real, err := s.open()
	if err != nil {
		return err
	}
	defer root.Close()
	var all []keptFile
	for i, file := range append(append([]string{}, files...), absent...) {
		k := keptFile{Absent: i >= len(files)}
		if k.Name, err = filepath.Rel(real, file); err != nil || !filepath.IsLocal(k.Name) {
			continue
		}
		if !k.Absent {
			keeps, err := k.copyTo(root, filepath.Join(dir, strconv.Itoa(len(all))))
			if err != nil {
				return fmt.Errorf("keep %s: %w", file, err)
			}
			if !keeps {
				continue
			}
		}
		all = append(all, k)
	}
	list, err := json.Marshal(all)
	if err != nil {
		return err
	}
	part := filepath.Join(dir, "part")
	if err := os.WriteFile(part, list, 0o600); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(dir, listFile))
}

// Discard deletes the copies under a name.
func (s *Snapshots) Discard(name string) error { return os.RemoveAll(filepath.Join(s.Kept, name)) }

// open opens the workspace, and returns its real path.
func (s *Snapshots) open() (*os.Root, string, error) {
	real, err := filepath.EvalSymlinks(s.Workspace)
	if err != nil {
		return nil, "", err
	}
	root, err := os.OpenRoot(real)
	return root, real, err
}

// copyTo copies the file, and sets the other fields. It reports whether the file can be kept.
func (k *keptFile) copyTo(root *os.Root, path string) (bool, error) {
	info, err := root.Lstat(k.Name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k.Absent = true
		return true, nil
	case err != nil:
		return false, err
	}
	k.Mode = info.Mode()
	switch k.Mode.Type() {
	case fs.ModeSymlink:
		k.Link, err = root.Readlink(k.Name)
		return true, err
	case 0:
	default:
		return false, nil
	}
	from, err := root.Open(k.Name)
	if err != nil {
		return false, err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	_, err = io.Copy(to, from)
	return true, errors.Join(err, to.Sync(), to.Close())
}

// Restore makes the files as Keep copied them under a name, and deletes the copies. Without copies it does nothing.
func (s *Snapshots) Restore(name string) error {
	dir := filepath.Join(s.Kept, name)
	list, err := os.ReadFile(filepath.Join(dir, listFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var all []keptFile
	if err == nil {
		err = json.Unmarshal(list, &all)
	}
	if err != nil {
		return err
	}
	root, _, err := s.open()
	if err != nil {
		return err
	}
	defer root.Close()
	for i, k := range all {
		if err := k.restore(root, filepath.Join(dir, strconv.Itoa(i))); err != nil {
			return fmt.Errorf("restore %s, whose copy is in %s: %w", k.Name, dir, err)
		}
	}
	return s.Discard(name)
}

func (k keptFile) restore(root *os.Root, path string) error {
	if k.Absent {
		if err := root.Remove(k.Name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := root.MkdirAll(filepath.Dir(k.Name), 0o755); err != nil {
		return err
	}
	part := k.Name + ".pocketcoder-part"
	if err := root.RemoveAll(part); err != nil {
		return err
	}
	if k.Link != "" {
		if err := root.Symlink(k.Link, part); err != nil {
			return err
		}
	} else if err := copyInto(root, part, k.Mode.Perm(), path); err != nil {
		return err
	}
	return root.Rename(part, k.Name)
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
