// Package snapshots compares files with the snapshots that OpenCode takes of a repository before and after each step of
// a turn, and keeps files while OpenCode restores others.
//
// Promises:
//   - A file that cannot be compared counts as one that differs.
//   - Files are copied before OpenCode changes them, and a copy stays until its file is restored, also after a crash.
//   - If one file cannot be restored, the others are, and all copies stay.
//   - No file outside the workspace is read or written, whatever links the workspace has.
//
// It must not know turns, or which files an undo keeps.
package snapshots

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Snapshots are those of one OpenCode. A snapshot is a git tree, named by its hash.
type Snapshots struct {
	Workspace string // absolute
	Dir       string // of OpenCode's git directories, one for each repository
	Kept      string // directory of copies

	// Git runs git with the rights of OpenCode, which can write those git directories, and returns its output.
	Git func(ctx context.Context, args ...string) (string, error)
}

// repository is a git directory of OpenCode, and the directory whose snapshots it holds.
type repository struct{ dir, root string }

// find returns the repository that has a snapshot. OpenCode deletes snapshots after a week.
func (s *Snapshots) find(ctx context.Context, snapshot string) (r repository, found bool, err error) {
	if snapshot == "" {
		return r, false, nil
	}
	real, err := filepath.EvalSymlinks(s.Dir) // OpenCode's isolation may show the directory only there
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, err
	}
	dirs, err := filepath.Glob(filepath.Join(real, "*", "*"))
	if err != nil {
		return r, false, err
	}
	for _, dir := range dirs {
		r.dir = dir
		if _, err := r.git(ctx, s, "cat-file", "-e", snapshot+"^{tree}"); err != nil {
			continue
		}
		root, err := r.git(ctx, s, "config", "core.worktree")
		r.root = strings.TrimSuffix(root, "\n")
		return r, err == nil, err
	}
	return r, false, ctx.Err()
}

func (r repository) git(ctx context.Context, s *Snapshots, args ...string) (string, error) {
	as := []string{"--git-dir=" + r.dir, "--literal-pathspecs", "--no-optional-locks"}
	if r.root != "" {
		as = append([]string{"-C", r.root}, append(as, "--work-tree="+r.root)...)
	}
	return s.Git(ctx, append(as, args...)...)
}

// batchSize bounds the length of a command line of git.
const batchSize = 500

// entries returns the files of a snapshot among some absolute paths, as "MODE HASH".
func (r repository) entries(ctx context.Context, s *Snapshots, snapshot string, files []string) (map[string]string,
	error) {
	all := map[string]string{}
	for some := range slices.Chunk(files, batchSize) {
		args := []string{"ls-tree", "--full-tree", "-z", snapshot, "--"}
		for _, file := range some {
			name, err := filepath.Rel(r.root, file)
			if err != nil {
				return nil, err
			}
			args = append(args, name)
		}
		out, err := r.git(ctx, s, args...)
		if err != nil {
			return nil, err
		}
		for line := range strings.SplitSeq(out, "\x00") { // MODE TYPE HASH<tab>NAME
			if entry, name, ok := strings.Cut(line, "\t"); ok {
				fields := strings.Fields(entry)
				all[filepath.Join(r.root, name)] = fields[0] + " " + fields[2]
			}
		}
	}
	return all, nil
}

// current returns the files that exist, as entries has them. Git applies the filters of the repository, as it did for
// the snapshot. It reads no other file than a regular one. A file that cannot be read is unlike every entry.
func (r repository) current(ctx context.Context, s *Snapshots, files []string) (map[string]string, error) {
	root, err := os.OpenRoot(r.root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	all := map[string]string{}
	var regular []string
	for _, file := range files {
		entry, err := currentEntry(root, r.root, file)
		if err != nil {
			entry = unreadable
		}
		if entry != "" {
			all[file] = entry
		}
		if strings.HasPrefix(entry, "100") {
			regular = append(regular, file)
		}
	}
	for some := range slices.Chunk(regular, batchSize) {
		if err := r.hash(ctx, s, some, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

const unreadable = "unreadable"

// currentEntry returns the entry of a file, without the hash of a regular one. It is empty if there is no file, as for
// git where a directory above is missing, or is a file or a link.
func currentEntry(root *os.Root, dir, file string) (string, error) {
	name, err := filepath.Rel(dir, file)
	if err != nil {
		return "", err
	}
	if above, err := notDirectoryAbove(root, name); above != "" || err != nil {
		return "", err
	}
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case info.Mode().IsRegular() && info.Mode()&0o100 != 0:
		return "100755 ", nil
	case info.Mode().IsRegular():
		return "100644 ", nil
	case info.Mode().Type() == fs.ModeSymlink:
		target, err := root.Readlink(name)
		return fmt.Sprintf("120000 %x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(target), target))), err
	}
	return info.Mode().Type().String(), nil
}

// hash adds the hashes of regular files to their entries. A file that git cannot read fails a whole batch, so it then
// hashes one file at a time.
func (r repository) hash(ctx context.Context, s *Snapshots, files []string, all map[string]string) error {
	out, err := r.git(ctx, s, append([]string{"hash-object", "--"}, files...)...)
	hashes := strings.Fields(out)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded): // so the next files would not do better
		return err
	case err == nil && len(hashes) == len(files):
		for i, hash := range hashes {
			all[files[i]] += hash
		}
	case len(files) == 1:
		all[files[0]] = unreadable
	default:
		for one := range slices.Chunk(files, 1) {
			if err := r.hash(ctx, s, one, all); err != nil {
				return err
			}
		}
	}
	return nil
}

// Differing returns those of the files that differ now from a snapshot.
func (s *Snapshots) Differing(ctx context.Context, snapshot string, files []string) (all []string, err error) {
	r, found, err := s.find(ctx, snapshot)
	if err != nil || !found {
		return files, err
	}
	before, err := r.entries(ctx, s, snapshot, files)
	if err != nil {
		return nil, err
	}
	now, err := r.current(ctx, s, files)
	for _, file := range files {
		isRepository := strings.HasPrefix(before[file], "160000 ") && now[file] == fs.ModeDir.String()
		if now[file] != before[file] && !isRepository { // git changes no file of another repository
			all = append(all, file)
		}
	}
	return all, err
}

// AllDiffering returns all files of a snapshot that differ now, and perhaps some that do not.
func (s *Snapshots) AllDiffering(ctx context.Context, snapshot string) (all []string, err error) {
	r, found, err := s.find(ctx, snapshot)
	if err != nil || !found {
		return nil, err
	}
	out, err := r.git(ctx, s, "diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", "--no-textconv",
		"--ignore-submodules=all", snapshot)
	for name := range strings.SplitSeq(out, "\x00") {
		if name != "" {
			all = append(all, filepath.Join(r.root, name))
		}
	}
	return all, err
}

// Absent returns those of the files that a snapshot does not have. It returns none for an unknown snapshot.
func (s *Snapshots) Absent(ctx context.Context, snapshot string, files []string) (all []string, err error) {
	r, found, err := s.find(ctx, snapshot)
	if err != nil || !found {
		return nil, err
	}
	before, err := r.entries(ctx, s, snapshot, files)
	for _, file := range files {
		if before[file] == "" && err == nil {
			all = append(all, file)
		}
	}
	return all, err
}
