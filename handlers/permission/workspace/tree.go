package workspace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"pocketcoder/handlers/policy/files"
	"pocketcoder/handlers/policy/program"
)

// ListFolder returns the names in a folder for policy.Input: at most so many, and none for what is no folder.
func ListFolder(folder string, most int) (entries []files.Entry, ok bool) {
	f, err := os.OpenFile(folder, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, os.ErrNotExist) {
		return nil, true
	}
	if err != nil {
		return nil, false
	}
	defer f.Close()
	names, err := f.ReadDir(most)
	if err != nil && err != io.EOF {
		return nil, false
	}
	for _, name := range names {
		e := files.Entry{Name: name.Name()}
		switch {
		case name.IsDir():
			e.Kind = files.Folder
		case name.Type()&os.ModeSymlink != 0:
			e.Kind = files.Link
		}
		e.Plain = e.Kind == files.File && isPlainGitFile(folder, e.Name)
		switch git := filepath.Join(folder, e.Name); {
		case e.Name != ".git":
		case e.Kind == files.Folder:
			e.Runs = !isMissing(filepath.Join(git, "commondir")) || runsPrograms(git)
		default:
			e.Runs = fileRunsPrograms(git)
		}
		e.Secret = e.Name == ".git" && holdsSecrets(filepath.Join(folder, e.Name), e.Kind == files.Folder)
		if e.Kind != files.Folder && slices.Contains(ignoreFiles, e.Name) {
			e.Shows = shownNames(filepath.Join(folder, e.Name))
		}
		if e.Kind == files.Folder && e.Name == ".git" {
			e.Shows = shownNames(filepath.Join(folder, ".git/info/exclude"))
		}
		entries = append(entries, e)
	}
	return entries, true
}

// shownNames returns what policy.ShownNames finds in a file: any name when the file cannot be read.
func shownNames(file string) []string {
	body, ok := readRegular(file, 64<<10)
	if _, err := os.Lstat(file); !ok && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if !ok {
		return []string{"*"}
	}
	return program.ShownNames(string(body))
}

// gitSecret finds what a git configuration may hold that is secret: a password in a URL, a header, a credential.
// gitLoginURL finds a URL with a login.
var (
	gitSecret   = regexp.MustCompile(`(?i)://[^/\s]*@|header|credential|token|passw|secret|key|cookie`)
	gitLoginURL = regexp.MustCompile(`://[^/\s]*@`)
)

// plainGitConfig reports whether a git configuration holds no secret. Every repository has one: without a look at it,
// each grep -r would ask.
func plainGitConfig(path string) bool {
	body, ok := readRegular(path, 64<<10)
	return ok && !gitSecret.Match(body)
}

// isPlainGitFile reports whether a file in a folder .git, or below one, is a configuration or a FETCH_HEAD that holds
// no secret.
func isPlainGitFile(folder, name string) bool {
	if !strings.Contains(folder+"/", "/.git/") {
		return false
	}
	switch file := filepath.Join(folder, name); name {
	case "config", "config.worktree":
		return plainGitConfig(file)
	case "FETCH_HEAD": // it names branches, which may be called like what is secret, and URLs
		body, ok := readRegular(file, 1<<20)
		return ok && !gitLoginURL.Match(body)
	}
	return false
}

// readRegular reads a regular file of at most so many bytes.
func readRegular(path string, most int64) (body []byte, ok bool) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > most {
		return nil, false
	}
	body, err = io.ReadAll(io.LimitReader(f, most))
	return body, err == nil
}

// TrackedFiles returns the files that git tracks in the repository around a folder, for policy.Input. A submodule has a
// slash at the end of its path. It reads the index itself: git would obey the repository's configuration.
func TrackedFiles(folder string) (paths []string, ok bool) {
	for top := folder; ; top = filepath.Dir(top) {
		git := filepath.Join(top, ".git")
		info, err := os.Lstat(git)
		switch {
		case err == nil && info.Mode().IsRegular(): // a worktree or a submodule
			body, _ := readRegular(git, 4<<10)
			dir, found := strings.CutPrefix(strings.TrimSpace(string(body)), "gitdir: ")
			if !found {
				return nil, false
			}
			if git = dir; !filepath.IsAbs(dir) {
				git = filepath.Join(top, dir)
			}
		case err != nil && top != "/":
			continue
		case err != nil || !info.IsDir() || !isRepository(git):
			return nil, false
		}
		body, ok := readRegular(filepath.Join(git, "index"), 64<<20)
		if !ok {
			return nil, false
		}
		names, ok := indexNames(body)
		for _, name := range names {
			paths = append(paths, top+"/"+name)
		}
		return paths, ok
	}
}

// gitHead is what git accepts as HEAD of a repository, and gitElsewhere finds settings by which a repository's files
// lie elsewhere.
var (
	gitHead      = regexp.MustCompile(`^(ref: refs/\S+|[0-9a-f]{40})\n$`)
	gitElsewhere = regexp.MustCompile(`(?i)worktree|include`)
)

// isRepository reports whether git takes a folder .git for the repository of the folder around it. Git ignores one
// without HEAD, objects and refs, and reads the repository above.
func isRepository(dir string) bool {
	for _, name := range []string{"objects", "refs"} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || !info.IsDir() || info.Mode()&0o500 != 0o500 {
			return false
		}
	}
	head, ok := readRegular(filepath.Join(dir, "HEAD"), 4<<10)
	config, known := readRegular(filepath.Join(dir, "config"), 64<<10)
	if _, err := os.Lstat(filepath.Join(dir, "config")); errors.Is(err, os.ErrNotExist) {
		known = true
	}
	return ok && known && gitHead.Match(head) && !gitElsewhere.Match(config)
}

// indexNames returns the names in a git index of version 2 or 3, that of a submodule with a slash at its end. ok is
// false for every other form, for one that is split or sparse, and for one with other hashes than SHA-1.
func indexNames(index []byte) (names []string, ok bool) {
	if len(index) < 12+20 || string(index[:4]) != "DIRC" {
		return nil, false
	}
	version, count := binary.BigEndian.Uint32(index[4:]), binary.BigEndian.Uint32(index[8:])
	if version != 2 && version != 3 {
		return nil, false
	}
	at := 12
	for range count {
		const fixed = 62 // bytes before the name
		if len(index) < at+fixed+2 {
			return nil, false
		}
		flags := binary.BigEndian.Uint16(index[at+60:])
		start := at + fixed
		if flags&0x4000 != 0 { // extended
			start += 2
		}
		end := bytes.IndexByte(index[start:], 0)
		const sparse, submodule = 0o4, 0o16 // kinds of entries
		kind := binary.BigEndian.Uint32(index[at+24:]) >> 12
		if length := int(flags & 0xfff); kind == sparse || end < 1 || length != min(end, 0xfff) {
			return nil, false
		}
		name := string(index[start : start+end])
		if kind == submodule {
			name += "/"
		}
		names = append(names, name)
		at += (start - at + end + 8) / 8 * 8
	}
	for rest := index[at:]; len(rest) > 20; { // extensions, then the hash
		size := uint64(8)
		if len(rest) >= 8 {
			size += uint64(binary.BigEndian.Uint32(rest[4:]))
		}
		if string(rest[:4]) == "link" || size > uint64(len(rest)) {
			return nil, false
		}
		rest = rest[size:]
	}
	return names, true
}
