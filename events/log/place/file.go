package place

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
)

// file is the path of a file, which may be on a disk that fails or is not mounted. The file has its name once it is
// complete on disk, and matches its hash. Opening one that is not regular fails; it neither blocks nor follows a link.
type file string

// Write writes the file and waits until it is on disk. want is the SHA-256 of the content. It does not use the size.
func (p file) Write(_ context.Context, content io.Reader, _ int64, want []byte) error {
	path := string(p)
	part, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(part, sum), content)
	if err == nil && !bytes.Equal(sum.Sum(nil), want) {
		err = ErrMismatch
	}
	if err = errors.Join(err, part.Sync(), part.Close()); err != nil {
		return err
	}
	if err := os.Rename(part.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (p file) Open(context.Context) (io.ReadCloser, error) {
	path := string(p)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) // a FIFO would block
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return fileReader{f}, nil
}

// ReadEnd returns the end of the file, at most n bytes.
func (p file) ReadEnd(ctx context.Context, n int) ([]byte, error) {
	r, err := p.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f := r.(fileReader).file
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(max(0, size-int64(n)), io.SeekStart)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return io.ReadAll(r)
}

// fileReader is not the file itself, whose errors are others.
type fileReader struct{ file *os.File }

func (r fileReader) Read(p []byte) (int, error) {
	n, err := r.file.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return n, err
}

func (r fileReader) Close() error { return r.file.Close() }

// Holds reports whether the file has the content with a SHA-256.
func (p file) Holds(ctx context.Context, want []byte) bool {
	r, err := p.Open(ctx)
	if err != nil {
		return false
	}
	defer r.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, r)
	return err == nil && bytes.Equal(sum.Sum(nil), want)
}

// Remove removes the file. It is no error if there is none.
func (p file) Remove(context.Context) error { return os.RemoveAll(string(p)) }
