package log

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
)

// PutBlob stores the content of r under name, in constant memory, and returns the reference for an event. It redacts nothing:
// write the content through Writer before.
func (l *Log) PutBlob(ctx context.Context, name string, r io.Reader) (events.Blob, error) {
	bucket, err := l.bucket()
	if err != nil {
		return events.Blob{}, fmt.Errorf("store blob %s: %w", name, err)
	}
	sum := sha256.New()
	info, err := bucket.Put(ctx, jetstream.ObjectMeta{Name: name}, io.TeeReader(r, sum))
	if err != nil {
		return events.Blob{}, fmt.Errorf("store blob %s: %w", name, err)
	}
	return events.Blob{Name: name, Size: int64(info.Size), SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// bucket returns the bucket for writing. A log that is attached for reading has none.
func (l *Log) bucket() (jetstream.ObjectStore, error) {
	if l.blobs == nil {
		return nil, errors.New("the log is attached for reading")
	}
	return l.blobs, nil
}

// OpenBlob reads a stored blob, in constant memory. It reads the bucket's messages directly, as the object store lays
// them out (ADR-20): a reader's account can do that, while the client's own Get needs a consumer that it may not have.
func (l *Log) OpenBlob(ctx context.Context, name string) (io.ReadCloser, error) {
	meta := "$O." + blobsBucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
	var info jetstream.ObjectInfo
	_, err := l.direct(ctx, blobsStream, meta, 0, func(m *nats.Msg, _ uint64) error { return json.Unmarshal(m.Data, &info) })
	if err != nil {
		return nil, fmt.Errorf("open blob %s: %w", name, err)
	}
	if info.NUID == "" || info.Deleted {
		return nil, fmt.Errorf("open blob %s: %w", name, ErrNoBlob)
	}
	r, w := io.Pipe()
	go func() {
		chunks := "$O." + blobsBucket + ".C." + info.NUID
		_, err := l.direct(ctx, blobsStream, chunks, 0, func(m *nats.Msg, _ uint64) error {
			_, err := w.Write(m.Data)
			return err
		})
		w.CloseWithError(err)
	}()
	return r, nil
}

// ErrNoBlob is the error of a name without a blob.
var ErrNoBlob = errors.New("no such blob")

// KeepBlob stores a body under its own hash, so that storing it again stores nothing new. Like PutBlob it redacts nothing.
func (l *Log) KeepBlob(ctx context.Context, body []byte) (events.Blob, error) {
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	b := events.Blob{Name: "sha256-" + hash, Size: int64(len(body)), SHA256: hash}
	bucket, err := l.bucket()
	if err != nil {
		return events.Blob{}, fmt.Errorf("store blob %s: %w", b.Name, err)
	}
	_, err = bucket.GetInfo(ctx, b.Name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return l.PutBlob(ctx, b.Name, bytes.NewReader(body))
	}
	if err != nil {
		return events.Blob{}, fmt.Errorf("look up blob %s: %w", b.Name, err)
	}
	return b, nil
}

// putBody stores an event's large body and returns the reference that replaces it.
func (l *Log) putBody(ctx context.Context, body []byte) ([]byte, error) {
	b, err := l.KeepBlob(ctx, body)
	if err != nil {
		return nil, err
	}
	return json.Marshal(b)
}

// fetchBody returns the body of a stored reference, and checks its hash.
func (l *Log) fetchBody(ctx context.Context, reference []byte) ([]byte, error) {
	var b events.Blob
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
