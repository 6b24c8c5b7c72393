package workspace

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"unicode/utf8"

	"pocketcoder/events"
)

// OpenCode computes the new content of a file before its request and writes it after the approval. What changes the
// file in between would be lost, so an approval holds only for the files as they were.

// Files are hashed up to these sizes. Beyond them their size and modification time are compared.
const (
	maxHashed    = 16 << 20 // bytes of one file
	maxHashedAll = 64 << 20 // bytes of all files of a request
)

// RequestFingerprints returns the fingerprints of the files that a request changes. It returns nil for a request that
// changes none.
func RequestFingerprints(a events.PermissionRequest) []events.FileFingerprint {
	if a.Permission != events.KindEdit {
		return nil
	}
	about := a.About()
	paths := about.Patched()
	if len(paths) == 0 {
		paths = []string{about.Filepath}
	}
	return fingerprints(paths)
}

// fingerprints returns the fingerprints of absolute paths. It leaves out all other paths.
func fingerprints(paths []string) (all []events.FileFingerprint) {
	hashable := int64(maxHashedAll)
	for _, path := range paths {
		if filepath.IsAbs(path) {
			f := fingerprint(path, min(maxHashed, hashable))
			if f.SHA256 != "" {
				hashable -= f.Size
			}
			all = append(all, f)
		}
	}
	return all
}

// fingerprint returns the state of a file. It hashes a file of at most hashable bytes.
func fingerprint(path string, hashable int64) events.FileFingerprint {
	f := events.FileFingerprint{Path: path}
	real, ok := RealPath(path)
	if !ok {
		return f
	}
	if real != path {
		f.Target = real
	}
	file, err := openFile(real)
	if err != nil {
		f.Absent = errors.Is(err, fs.ErrNotExist)
		return f
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return f
	}
	if f.Size = info.Size(); f.Size > hashable {
		f.ModifiedNS = info.ModTime().UnixNano()
		return f
	}
	hash := sha256.New()
	n, err := io.Copy(hash, io.LimitReader(file, hashable+1))
	if err != nil || n > hashable { // it grows while it is read
		return f
	}
	f.Size, f.SHA256 = n, hex.EncodeToString(hash.Sum(nil))
	return f
}

// openFile opens a file that may have been replaced meanwhile. It follows no link, and does not wait for the other end
// of a pipe.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

// ChangedFiles returns the files that differ from their fingerprints, relative to directory.
func ChangedFiles(before []events.FileFingerprint, directory string) (changed []string) {
	var paths []string
	for _, file := range before {
		paths = append(paths, file.Path)
	}
	return Differences(before, fingerprints(paths), directory)
}

// Differences returns the files that differ between two lists of fingerprints, relative to directory. A file that is
// only in one list differs.
func Differences(before, now []events.FileFingerprint, directory string) (changed []string) {
	for _, file := range slices.Concat(before, now) {
		name := inline(fromRoot(directory, file.Path))
		if !(slices.Contains(before, file) && slices.Contains(now, file)) && !slices.Contains(changed, name) {
			changed = append(changed, name)
		}
	}
	return changed
}

// A person who decides about a command is shown the content of the files that it names, up to these limits.
const (
	maxShown     = 4        // files
	maxShownFile = 16 << 10 // bytes of one file
)

// Contents returns the content of the first text files of fingerprints that a person is shown. It leaves out a file
// that mayShow refuses, one that is too long, and one that has changed since.
func Contents(files []events.FileFingerprint, mayShow func(path string) bool) (all []events.FileContent) {
	for _, f := range files {
		if len(all) == maxShown {
			break
		}
		if f.SHA256 == "" || f.Size > maxShownFile || !mayShow(f.Path) {
			continue
		}
		text, err := readShown(cmp.Or(f.Target, f.Path))
		sum := sha256.Sum256(text)
		if err == nil && hex.EncodeToString(sum[:]) == f.SHA256 && utf8.Valid(text) && !bytes.ContainsRune(text, 0) {
			all = append(all, events.FileContent{Path: f.Path, Text: string(text)})
		}
	}
	return all
}

func readShown(path string) ([]byte, error) {
	file, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxShownFile+1))
}
