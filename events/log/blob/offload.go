package blob

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/nats-io/nats.go/jetstream"
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
