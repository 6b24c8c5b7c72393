package log

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// fileKey is the key under which the metadata of a blob's description holds the path of the file with its content.
const fileKey = "file"

// OffloadedTo returns the path of the file that holds the content of a blob, or "" if the bucket holds it.
func OffloadedTo(info *jetstream.ObjectInfo) string { return info.Metadata[fileKey] }

// Offload moves the content of a blob to a file in dir. The file has the name of the blob, and OpenBlob reads it there. It reports
// whether it moved the content now. The bucket has the content until the file is complete on disk.
func (l *Log) Offload(ctx context.Context, name, dir string) (moved bool, err error) {
	if moved, err = l.offload(ctx, name, dir); err != nil {
		err = fmt.Errorf("offload blob %s to %s: %w", name, dir, err)
	}
	return moved, err
}

func (l *Log) offload(ctx context.Context, name, dir string) (moved bool, err error) {
	if name != filepath.Base(name) {
		return false, errors.New("its name is not that of a file")
	}
	info, seq, err := l.describe(ctx, name)
	if err != nil {
		return false, err
	}
	if OffloadedTo(&info) != "" {
		l.purgeChunks(ctx, info.NUID) // of a process that was killed before it did this
		return false, nil
	}
	content, err := l.OpenBlob(ctx, name)
	if err != nil {
		return false, err
	}
	defer content.Close()
	path := filepath.Join(dir, name)
	if err := writeOffloaded(path, content, info.Digest); err != nil {
		return false, err
	}
	info.Metadata = map[string]string{fileKey: path}
	description := nats.NewMsg(metaSubject(name))
	description.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	if description.Data, err = json.Marshal(info); err != nil {
		return false, err
	}
	if _, err := l.js.PublishMsg(ctx, description, jetstream.WithExpectLastSequencePerSubject(seq)); err != nil {
		return false, err // the blob may have been stored again
	}
	l.purgeChunks(ctx, info.NUID)
	return true, nil
}

// writeOffloaded writes a file and waits until it is on disk. It checks the content against the digest of the blob.
func writeOffloaded(path string, content io.Reader, digest string) error {
	want, err := jetstream.DecodeObjectDigest(digest)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
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
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// openOffloaded opens a file. A file that cannot be opened counts as a lost content, so no reader waits for a disk that is not mounted.
func openOffloaded(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoBlob, err)
	}
	return f, nil
}

// isFileError reports whether the content of an offloaded blob could not be opened. No server can have it.
func isFileError(err error) bool {
	path := (*fs.PathError)(nil)
	return errors.As(err, &path)
}
