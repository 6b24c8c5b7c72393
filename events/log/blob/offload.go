package blob

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events/log/place"
)

// fileKey is the key under which the metadata of a blob's description holds the path of the file with its content, or
// the URL of the object.
const fileKey = "file"

// OffloadedTo returns the path of the file, or the URL of the object, that holds the content of a blob. It returns ""
// if the bucket holds it.
func OffloadedTo(info *jetstream.ObjectInfo) string { return info.Metadata[fileKey] }

// Offload moves the content of a blob to a file in dir, or to an object if dir is the URL of a store. It reports
// whether it moved the content now. The bucket has the content until the file or the object is complete.
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
	path, err := place.Write(ctx, dir, name, content, int64(info.Size), want)
	if errors.Is(err, place.ErrMismatch) {
		return false, fmt.Errorf("%w: %w", ErrDamaged, err)
	} else if err != nil {
		return false, err
	}
	info.Metadata = map[string]string{fileKey: path}
	if err := s.putDescription(ctx, info, jetstream.WithExpectLastSequencePerSubject(seq)); err != nil {
		return false, err // the blob may have been stored again
	}
	s.purgeChunks(ctx, info.NUID)
	return true, nil
}
