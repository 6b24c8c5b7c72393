package snapshots

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pocketcoder/events/atomicfile"
	"pocketcoder/sandbox/realdir"
)

// Copies are the files that Keep copies, as absolute paths.
type Copies struct {
	Files     []string            // copied as they are now
	Written   map[string][]string // of Files: the snapshots with the contents that OpenCode writes
	Absent    []string            // deleted by Restore; OpenCode leaves them as they are
	Unchanged []string            // have the expected content: Keep deletes earlier copies of them
	Changed   []string            // returned by Restore
	Seen      []string            // not copied; ChangedSince compares them with their state at the first Keep
}

// keptFile is the state that Restore gives to a file. Names are relative to the workspace.
type keptFile struct {
	Name   string      `json:"name"`
	Mode   fs.FileMode `json:"mode"`
	Link   string      `json:"link,omitempty"` // target of a symbolic link
	Absent bool        `json:"absent,omitempty"`
	Copy   string      `json:"copy,omitempty"` // name of the copy of a regular file

	File    string   `json:"file"`              // in whose place or above which it is
	Written []string `json:"written,omitempty"` // snapshots with the contents that OpenCode writes in File
	Left    string   `json:"left,omitempty"`    // state in which OpenCode leaves File if it writes nothing
}

// keptFiles are the content of listFile.
type keptFiles struct {
	Changed []string          `json:"changed"`
	Files   []keptFile        `json:"files"`
	Seen    map[string]string `json:"seen,omitempty"` // states, by the name relative to the workspace
}

const listFile = "files.json"

func (s *Snapshots) dirOf(name string) string { return filepath.Join(s.Kept, name) }

// load returns what was kept under a name.
func (s *Snapshots) load(name string) (k keptFiles, found bool, err error) {
	list, err := os.ReadFile(filepath.Join(s.dirOf(name), listFile))
	if errors.Is(err, fs.ErrNotExist) {
		return k, false, nil
	}
	if err == nil {
		err = json.Unmarshal(list, &k)
	}
	for i := range k.Files {
		k.Files[i].File = cmp.Or(k.Files[i].File, k.Files[i].Name) // earlier versions stored no File
	}
	if err != nil {
		err = fmt.Errorf("read the list of copies in %s: %w", s.dirOf(name), err)
	}
	return k, err == nil, err
}

// Keep copies files as they are now, under a name, for Restore. A second Keep with the same name replaces the copies of
// the files that c names, and leaves the other copies. Keep skips files outside the workspace, and everything except
// regular files, symbolic links and directories.
func (s *Snapshots) Keep(name string, c Copies) error {
	earlier, found, err := s.load(name)
	if err != nil || !found && len(c.Files)+len(c.Absent)+len(c.Seen) == 0 {
		return err
	}
	root, real, err := s.open()
	if err != nil {
		return err
	}
	defer root.Close()
	if err := os.MkdirAll(s.dirOf(name), 0o700); err != nil {
		return err
	}
	k := keptFiles{Files: slices.Clone(earlier.Files), Changed: slices.Clone(c.Changed), Seen: earlier.Seen}
	for _, file := range earlier.Changed {
		if !slices.Contains(c.Unchanged, file) && !slices.Contains(k.Changed, file) {
			k.Changed = append(k.Changed, file)
		}
	}
	slices.Sort(k.Changed)
	each := func(files []string, use func(file, local string) error) {
		for _, file := range files {
			if local := localTo(real, file); local != "" && err == nil {
				err = use(file, local)
			}
		}
	}
	each(c.Unchanged, func(_, local string) error {
		k.forget(local)
		return nil
	})
	each(c.Absent, func(_, local string) error {
		k.forget(local)
		left, err := stateOf(root, local)
		k.Files = append(k.Files, keptFile{Name: local, Absent: true, File: local, Left: left})
		return err
	})
	each(c.Files, func(file, local string) error {
		k.forget(local)
		copied, err := keeper{root, s.dirOf(name), earlier.Files}.keep(local)
		for i := range copied {
			copied[i].File, copied[i].Written = local, c.Written[file]
		}
		k.Files = append(k.Files, copied...)
		return err
	})
	if k.Seen == nil {
		k.Seen = map[string]string{}
		each(c.Seen, func(_, local string) (err error) {
			k.Seen[local], err = stateOf(root, local)
			return err
		})
	}
	switch {
	case err != nil && found:
		return fmt.Errorf("keep the files that were changed later: %w; earlier copies are in %s", err, s.dirOf(name))
	case err != nil:
		return errors.Join(fmt.Errorf("keep the files that were changed later: %w", err), s.Discard(name))
	}
	return s.store(name, k, earlier)
}

// localTo returns a path relative to the workspace, "" for one outside.
func localTo(workspace, file string) string {
	local, err := filepath.Rel(workspace, file)
	if err != nil || !filepath.IsLocal(local) {
		return ""
	}
	return local
}

// forget deletes the entries of a file, and of those that cannot exist beside it.
func (k *keptFiles) forget(name string) {
	k.Files = slices.DeleteFunc(k.Files, func(f keptFile) bool {
		return f.Name == name || strings.HasPrefix(f.Name, name+"/") || strings.HasPrefix(name, f.Name+"/")
	})
}

// store writes the list of a name, and then deletes the copies that only the earlier list has.
func (s *Snapshots) store(name string, k, earlier keptFiles) error {
	list, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(s.dirOf(name), listFile), list); err != nil {
		return err
	}
	for _, f := range earlier.Files {
		if f.Copy != "" && !slices.ContainsFunc(k.Files, func(now keptFile) bool { return now.Copy == f.Copy }) {
			err = errors.Join(err, os.Remove(filepath.Join(s.dirOf(name), f.Copy)))
		}
	}
	return err
}

// Discard deletes the copies under a name.
func (s *Snapshots) Discard(name string) error { return os.RemoveAll(s.dirOf(name)) }

// open opens the workspace, and returns its real path.
func (s *Snapshots) open() (*os.Root, string, error) {
	real, err := filepath.EvalSymlinks(s.Workspace)
	if err != nil {
		return nil, "", err
	}
	root, err := os.OpenRoot(real)
	return root, real, err
}

// keeper copies files of the workspace into a directory.
type keeper struct {
	root    *os.Root
	dir     string
	earlier []keptFile // a copy of one of them is reused if it equals the file
}

// keep copies what is in the place of a file: a regular file, a symbolic link, a directory, or nothing. What stands in
// the place of a directory above the file is copied too, because an undo replaces it.
func (r keeper) keep(name string) (all []keptFile, err error) {
	above, err := notDirectoryAbove(r.root, name)
	if err != nil {
		return nil, err
	}
	if above != "" {
		all, err = r.keep(above)
		return append(all, keptFile{Name: name, Absent: true}), err
	}
	info, err := r.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return []keptFile{{Name: name, Absent: true}}, nil
	}
	if err != nil {
		return nil, err
	}
	f := keptFile{Name: name, Mode: info.Mode()}
	switch info.Mode().Type() {
	case fs.ModeSymlink:
		f.Link, err = r.root.Readlink(name)
		return []keptFile{f}, err
	case fs.ModeDir:
		return r.keepDirectory(name)
	case 0:
		f.Copy, err = r.copy(f)
		return []keptFile{f}, err
	}
	return nil, nil
}

func (r keeper) keepDirectory(name string) (all []keptFile, err error) {
	all = append(all, keptFile{Name: name, Absent: true}) // as a file
	err = fs.WalkDir(r.root.FS(), filepath.ToSlash(name), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		some, err := r.keep(filepath.FromSlash(path))
		all = append(all, some...)
		return err
	})
	return all, err
}

// notDirectoryAbove returns the file or the link that stands in the place of a directory above a file, "" for none.
func notDirectoryAbove(root *os.Root, name string) (string, error) {
	for i, c := range name {
		if c != filepath.Separator {
			continue
		}
		info, err := root.Lstat(name[:i])
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return "", nil
		case err != nil:
			return "", err
		case !info.IsDir():
			return name[:i], nil
		}
	}
	return "", nil
}

// copy copies a regular file, and returns the name of the copy.
func (r keeper) copy(f keptFile) (string, error) {
	for _, before := range r.earlier {
		if before.Name == f.Name && before.Copy != "" && before.Mode == f.Mode {
			same, err := r.isCopy(before)
			if same || err != nil {
				return before.Copy, err
			}
		}
	}
	from, _, err := realdir.OpenFile(r.root, f.Name)
	if err != nil {
		return "", err
	}
	defer from.Close()
	base := filepath.Base(f.Name)
	to, err := os.CreateTemp(r.dir, "*-"+base[:min(len(base), maxCopyName)])
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, from)
	return filepath.Base(to.Name()), errors.Join(err, to.Sync(), to.Close())
}

// maxCopyName bounds how much of a file's name its copy has.
const maxCopyName = 200

func (r keeper) isCopy(f keptFile) (bool, error) {
	now, _, err := realdir.OpenFile(r.root, f.Name)
	if err != nil {
		return false, err
	}
	defer now.Close()
	then, err := os.Open(filepath.Join(r.dir, f.Copy))
	if err != nil {
		return false, err
	}
	defer then.Close()
	a, b := make([]byte, 1<<16), make([]byte, 1<<16)
	for {
		n, err := io.ReadFull(now, a)
		m, thenErr := io.ReadFull(then, b)
		if !bytes.Equal(a[:n], b[:m]) {
			return false, nil
		}
		if err != nil || thenErr != nil {
			isEnd := func(err error) bool { return err == io.EOF || err == io.ErrUnexpectedEOF }
			if isEnd(err) && isEnd(thenErr) {
				return true, nil
			}
			return false, errors.Join(err, thenErr)
		}
	}
}
