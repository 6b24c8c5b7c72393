package sandbox

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"pocketcoder/sandbox/realdir"
	"pocketcoder/sandbox/wire"
)

// Bounds of a search for changed files. Hashing runs at 1 GB/s and more, a walk at some 300,000 files a second
// (measured).
const (
	changesWithin = 20 * time.Second
	maxHashed     = 256 << 20 // bytes of one file: a larger one is listed without its hash
	maxHashedAll  = 1 << 30   // bytes of all of them
	maxDepth      = 200       // directories within one another: each takes two descriptors, which all commands share
)

// changeSlack is how far a file's change time may lie before the moment of the change: the kernel takes it from a
// clock that moves with its timer, every 10 ms at the slowest (CONFIG_HZ=100).
const changeSlack = int64(10 * time.Millisecond)

// readFile writes a regular file of a workspace. No symlink leads out of it, and nothing that is no file is opened for
// long enough to block.
func readFile(workspace, name string, to io.Writer) error {
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return fmt.Errorf("open workspace: %w", err)
	}
	defer root.Close()
	f, _, err := realdir.OpenFile(root, name)
	if err != nil {
		if e := new(fs.PathError); errors.As(err, &e) {
			err = e.Err
		}
		return fmt.Errorf("read %s: %w", name, err)
	}
	defer f.Close()
	if _, err := io.Copy(to, f); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// listChanges lists the regular files below a workspace whose content or state changed since then, but for git's own,
// in no order: at most wire.MaxChanges of them, then how many more there are. since is in nanoseconds since 1970.
func listChanges(ctx context.Context, workspace string, since int64, to io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, changesWithin)
	defer cancel()
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return fmt.Errorf("open workspace: %w", err)
	}
	defer root.Close()
	lines := bufio.NewWriter(to)
	s := &changeSearch{since: since - changeSlack, to: json.NewEncoder(lines), hash: maxHashedAll}
	s.walk(ctx, root, ".")
	if ctx.Err() != nil { // it found too much to look at: what it has found is worth telling
		s.more++
	}
	if s.failed != nil {
		return s.failed
	}
	if s.more > 0 {
		if err := s.to.Encode(wire.Change{More: s.more}); err != nil {
			return err
		}
	}
	return lines.Flush()
}

// changeSearch is one search for changed files.
type changeSearch struct {
	since  int64
	to     *json.Encoder
	listed int
	more   int   // changed files that are not listed
	hash   int64 // bytes that may still be hashed
	failed error // the caller stopped listening
}

// walk lists a directory and all below it, until ctx ends or the caller stops listening. It follows no symlink. It
// skips what it cannot read and what was removed meanwhile.
func (s *changeSearch) walk(ctx context.Context, dir *os.Root, at string) {
	f, err := dir.Open(".")
	if err != nil {
		return
	}
	defer f.Close()
	for {
		entries, end := f.ReadDir(256)
		for _, e := range entries {
			if ctx.Err() != nil || s.failed != nil {
				return
			}
			s.visit(ctx, dir, e, path.Join(at, e.Name()))
		}
		if end != nil {
			return
		}
	}
}

func (s *changeSearch) visit(ctx context.Context, dir *os.Root, e fs.DirEntry, at string) {
	if e.IsDir() && e.Name() != ".git" {
		if strings.Count(at, "/") >= maxDepth {
			s.more++
			return
		}
		if below, err := dir.OpenRoot(e.Name()); err == nil {
			s.walk(ctx, below, at)
			below.Close()
		}
		return
	}
	if !e.Type().IsRegular() {
		return
	}
	info, err := dir.Lstat(e.Name())
	if err != nil || !info.Mode().IsRegular() || changeTime(info) < s.since {
		return
	}
	if s.listed == wire.MaxChanges || !utf8.ValidString(at) { // JSON could not name it
		s.more++
		return
	}
	s.listed++
	s.failed = s.to.Encode(s.describe(dir, e.Name(), wire.Change{Path: at, Size: info.Size()}))
}

// describe adds the hash of a file that is small enough and may be read.
func (s *changeSearch) describe(dir *os.Root, name string, c wire.Change) wire.Change {
	f, info, err := realdir.OpenFile(dir, name)
	if err != nil {
		return c
	}
	defer f.Close()
	if c.Size = info.Size(); c.Size > min(maxHashed, s.hash) {
		return c
	}
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(f, c.Size)) // it may be growing
	s.hash -= n
	if err == nil && n == c.Size {
		c.SHA256 = hex.EncodeToString(sum.Sum(nil))
	}
	return c
}
