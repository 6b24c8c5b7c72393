// Package snapshots compares files with the snapshots that OpenCode takes of a repository before and after each step of
// a turn, and keeps files while OpenCode restores others.
//
// Promises:
//   - A file that cannot be compared counts as one that differs.
//   - Files are copied before OpenCode changes them, and a copy stays until its file is restored, also after a crash.
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
// the snapshot. It reads no other file than a regular one.
func (r repository) current(ctx context.Context, s *Snapshots, files []string) (map[string]string, error) {
	all := map[string]string{}
	var regular []string
	for _, file := range files {
		info, err := os.Lstat(file)
		switch {
		case err != nil: // git has no file where a directory is missing, or is a file
		case info.Mode().IsRegular():
			regular, all[file] = append(regular, file), "100644 "
			if info.Mode()&0o100 != 0 {
				all[file] = "100755 "
			}
		case info.Mode().Type() == fs.ModeSymlink:
			target, err := os.Readlink(file)
			if err != nil {
				return nil, err
			}
			all[file] = fmt.Sprintf("120000 %x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(target), target)))
		default:
			all[file] = info.Mode().Type().String()
		}
	}
	for some := range slices.Chunk(regular, batchSize) {
		out, err := r.git(ctx, s, append([]string{"hash-object", "--"}, some...)...)
		if err != nil {
			return nil, err
		}
		for i, hash := range strings.Fields(out) {
			all[some[i]] += hash
		}
	}
	return all, nil
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
		if now[file] != before[file] {
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
	out, err := r.git(ctx, s, "diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", snapshot)
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
