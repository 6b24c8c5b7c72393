package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events/atomicfile"
)

// fileKey is the key under which the metadata of a blob's description holds the path of the file with its content.
const fileKey = "file"

// OffloadedTo returns the path of the file that holds the content of a blob, "" if the bucket holds it.
func OffloadedTo(info *jetstream.ObjectInfo) string { return info.Metadata[fileKey] }

// Offload moves the content of a blob to a file in dir. It reports whether it moved the content now. The bucket has the
// content until the file is complete.
func (s *Store) Offload(ctx context.Context, name, dir string) (moved bool, err error) {
	if moved, err = s.offload(ctx, name, dir); err != nil {
		err = fmt.Errorf("offload blob %s to %s: %w", name, dir, err)
	}
	return moved, err
}

func (s *Store) offload(ctx context.Context, name, dir string) (moved bool, err error) {
	info, seq, err := s.describe(ctx, name)
	if err != nil {
		return false, err
	}
	if OffloadedTo(&info) != "" || info.Size == 0 { // nothing to move
		s.purgeChunks(ctx, info.NUID) // a process may have been killed before it purged them
		return false, nil
	}
	content, err := s.Open(ctx, name)
	if err != nil {
		return false, err
	}
	defer content.Close()
	want, err := jetstream.DecodeObjectDigest(info.Digest)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	path := filepath.Join(dir, name)
	if filepath.Dir(path) != filepath.Clean(dir) {
		return false, errors.New("its name is not that of a file")
	}
	if err := writeFile(path, content, want); err != nil {
		return false, err
	}
	info.Metadata = map[string]string{fileKey: path}
	if err := s.putDescription(ctx, info, jetstream.WithExpectLastSequencePerSubject(seq)); err != nil {
		return false, err // the blob may have been stored again
	}
	s.purgeChunks(ctx, info.NUID)
	return true, nil
}

// ErrUnreadable is each error of reading the file of an offloaded content.
var ErrUnreadable = errors.New("the file cannot be read")

// writeFile writes a content to a file, which has its name once it is complete on disk and matches its SHA-256.
func writeFile(path string, content io.Reader, want []byte) error {
	part, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(part, sum), content)
	if err == nil && !bytes.Equal(sum.Sum(nil), want) {
		err = fmt.Errorf("%w: it does not match its hash", ErrDamaged)
	}
	if err = errors.Join(err, part.Sync(), part.Close()); err != nil {
		return err
	}
	if err := os.Rename(part.Name(), path); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}

// contentFile is an open file, which may be on a disk that fails or is not mounted.
type contentFile struct{ file *os.File }

// openFile opens a file. It fails if the file is not regular: it neither blocks nor follows a link.
func openFile(path string) (f contentFile, err error) {
	f.file, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) // a FIFO would block
	if err != nil {
		return f, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	info, err := f.file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		f.Close()
		return f, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return f, nil
}

func (f contentFile) Read(p []byte) (int, error) {
	n, err := f.file.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return n, err
}

func (f contentFile) Close() error { return f.file.Close() }

// readFileEnd returns the end of a file, at most n bytes.
func readFileEnd(path string, n int64) ([]byte, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.file.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.file.Seek(max(0, size-n), io.SeekStart)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return io.ReadAll(f)
}

// fileHolds reports whether a file has the content with a SHA-256.
func fileHolds(path string, want []byte) bool {
	f, err := openFile(path)
	if err != nil {
		return false
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return err == nil && bytes.Equal(sum.Sum(nil), want)
}
