package events

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"
)

// Blob refers to an object in BLOBS.
type Blob struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// PutBlob stores what r gives under name, in constant memory, and returns the reference to keep in an event. Secrets
// must have been taken out before (see RedactWriter): what is stored is stored as it is.
func (l *Log) PutBlob(ctx context.Context, name string, r io.Reader) (Blob, error) {
	sum := sha256.New()
	info, err := l.blobs.Put(ctx, jetstream.ObjectMeta{Name: name}, io.TeeReader(r, sum))
	if err != nil {
		return Blob{}, fmt.Errorf("store blob %s: %w", name, err)
	}
	return Blob{Name: name, Size: int64(info.Size), SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// OpenBlob reads a stored blob.
func (l *Log) OpenBlob(ctx context.Context, name string) (io.ReadCloser, error) {
	store, err := l.blobStore(ctx)
	if err != nil {
		return nil, err
	}
	o, err := store.Get(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("open blob %s: %w", name, err)
	}
	return o, nil
}

// putBody stores an event's large body under its own hash, so that a repeated append stores nothing new.
func (l *Log) putBody(ctx context.Context, body []byte) ([]byte, error) {
	sum := sha256.Sum256(body)
	name := "sha256-" + hex.EncodeToString(sum[:])
	if _, err := l.blobs.GetInfo(ctx, name); errors.Is(err, jetstream.ErrObjectNotFound) {
		if _, err := l.PutBlob(ctx, name, bytes.NewReader(body)); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, fmt.Errorf("look up blob %s: %w", name, err)
	}
	return json.Marshal(Blob{Name: name, Size: int64(len(body)), SHA256: hex.EncodeToString(sum[:])})
}

// fetchBody gives the body that a stored reference stands for, and checks that it is the one that was stored.
func (l *Log) fetchBody(ctx context.Context, reference []byte) ([]byte, error) {
	var b Blob
	if err := json.Unmarshal(reference, &b); err != nil {
		return nil, fmt.Errorf("read blob reference: %w", err)
	}
	r, err := l.OpenBlob(ctx, b.Name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	body, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", b.Name, err)
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != b.SHA256 {
		return nil, fmt.Errorf("read blob %s: content does not match its hash", b.Name)
	}
	return body, nil
}

func (l *Log) blobStore(ctx context.Context) (jetstream.ObjectStore, error) {
	if l.blobs != nil {
		return l.blobs, nil
	}
	store, err := l.js.ObjectStore(ctx, blobsBucket)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", blobsBucket, err)
	}
	return store, nil
}
