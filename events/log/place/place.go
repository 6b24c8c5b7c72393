// Package place stores one blob where the operator wants it: in a file of a directory, or in an object of an
// S3-compatible store.
//
// Promises: a content is complete and matches its hash before Write returns its path.
//
// It must not know what contents are.
package place

import (
	"context"
	"errors"
	"io"
	"path/filepath"
)

// ErrUnreadable is each error of Open, and of reading what it returns. ErrUnavailable is one of a store that may have
// the content. ErrMismatch means that a content does not match its hash.
var (
	ErrUnreadable  = errors.New("the file cannot be read")
	ErrUnavailable = errors.New("the store does not return it now")
	ErrMismatch    = errors.New("it does not match its hash")
)

// Content is a file or an object.
type Content interface {
	Write(ctx context.Context, content io.Reader, size int64, want []byte) error
	Open(ctx context.Context) (io.ReadCloser, error)
	ReadEnd(ctx context.Context, n int) ([]byte, error)
	Holds(ctx context.Context, want []byte) bool
	Remove(ctx context.Context) error
}

// At returns the content at the path of a file, or at the URL of an object.
func At(path string) Content {
	if IsStore(path) {
		return Object(path)
	}
	return file(path)
}

// Write stores a content under a name in a directory, or below the URL of a prefix of a store. It returns the path of
// the file, or the URL of the object. want is the SHA-256 of the content.
func Write(ctx context.Context, dir, name string, content io.Reader, size int64, want []byte) (path string, err error) {
	if name != filepath.Base(name) {
		return "", errors.New("its name is not that of a file")
	}
	if path = filepath.Join(dir, name); IsStore(dir) {
		if path, err = joinObject(dir, name); err != nil {
			return "", err
		}
	}
	return path, At(path).Write(ctx, content, size, want)
}
