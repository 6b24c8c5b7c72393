// Package blob stores contents that are too large for a message. It stores large bodies of events, outputs of commands,
// and files in the bucket BLOBS. Offload moves a content to a file.
//
// Promises: the content of a blob is complete before the blob can be found. Read returns only a content that matches
// its hash.
//
// It must not know what an event is. It redacts nothing.
package blob

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
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"pocketcoder/events"
	"pocketcoder/events/log/direct"
)

// Bucket is the name of the bucket, and Stream that of the stream behind it.
const (
	Bucket = "BLOBS"
	Stream = "OBJ_" + Bucket
)

// Store stores and reads blobs. It is safe for concurrent use.
type Store struct {
	js     jetstream.JetStream
	direct direct.Reader
	bucket jetstream.ObjectStore // nil for a reader
	chunks jetstream.JetStream   // stores contents; separate, so that fragments in flight do not delay them
}

// Attach returns the store for a reader, whose account has only the right to read.
func Attach(js jetstream.JetStream, r direct.Reader) *Store { return &Store{js: js, direct: r} }

// Config returns the configuration of the bucket.
func Config(replicas int) jetstream.ObjectStoreConfig {
	return jetstream.ObjectStoreConfig{
		Bucket:      Bucket,
		Description: "bodies over 256 KiB",
		Storage:     jetstream.FileStorage,
		Replicas:    replicas,
		Metadata:    map[string]string{"config": "1"},
	}
}

// Create creates or updates the bucket. After that the store can write. timeout bounds one request to the server.
func (s *Store) Create(ctx context.Context, replicas int, timeout time.Duration) (err error) {
	if s.bucket, err = s.js.CreateOrUpdateObjectStore(ctx, Config(replicas)); err != nil {
		return fmt.Errorf("open bucket %s: %w", Bucket, err)
	}
	if s.chunks, err = jetstream.New(s.direct.Conn, jetstream.WithPublishAsyncTimeout(timeout)); err != nil {
		return fmt.Errorf("open jetstream: %w", err)
	}
	return nil
}

// A blob is stored in messages of chunkSize bytes. At most chunksInFlight of them are unacknowledged. The server syncs
// the disk once per message, so smaller ones are slower. The server refuses more than 128 MiB of messages that it has
// not stored yet (server/stream.go, streamDefaultMaxQueueBytes).
const (
	chunkSize      = 512 << 10
	chunksInFlight = 8
)

// Put stores the content of r under name, in constant memory, and returns the reference for an event. It redacts
// nothing: write the content through Log.Writer before. It replaces a blob with the same name.
//
// It writes what the object store's client would write (ADR-20). That client has up to 512 MiB in flight, and reports
// success before the blob is stored.
func (s *Store) Put(ctx context.Context, name string, r io.Reader) (events.Blob, error) {
	bucket, err := s.writable()
	if err != nil {
		return events.Blob{}, fmt.Errorf("store blob %s: %w", name, err)
	}
	before, err := bucket.GetInfo(ctx, name)
	if err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return events.Blob{}, fmt.Errorf("look up blob %s: %w", name, err)
	}
	sum := sha256.New()
	info := jetstream.ObjectInfo{Bucket: Bucket, NUID: nuid.Next(), ObjectMeta: jetstream.ObjectMeta{Name: name}}
	info.Opts = &jetstream.ObjectMetaOptions{ChunkSize: chunkSize}
	if err := s.putChunks(ctx, &info, io.TeeReader(r, sum)); err != nil {
		return events.Blob{}, fmt.Errorf("store blob %s: %w", name, err)
	}
	info.Digest = jetstream.GetObjectDigestValue(sum)
	if err := s.putDescription(ctx, info); err != nil {
		return events.Blob{}, fmt.Errorf("store blob %s: %w", name, err)
	}
	if before != nil {
		s.purgeChunks(ctx, before.NUID)
		if path := OffloadedTo(before); path != "" {
			_ = os.Remove(path) // nothing refers to it any more
		}
	}
	return events.Blob{Name: name, Size: int64(info.Size), SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// putChunks stores the content, and counts it in info. If it fails, it removes what it stored.
func (s *Store) putChunks(ctx context.Context, info *jetstream.ObjectInfo, r io.Reader) (err error) {
	subject := ChunkSubject(info.NUID)
	defer func() {
		if err == nil {
			return
		}
		s.purgeChunks(context.WithoutCancel(ctx), info.NUID)
	}()
	var inFlight []jetstream.PubAckFuture
	var spare []byte // of a chunk that is stored
	await := func(most int) error {
		for len(inFlight) > most {
			select {
			case <-inFlight[0].Ok():
			case err := <-inFlight[0].Err():
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			spare, inFlight = inFlight[0].Msg().Data[:chunkSize], inFlight[1:]
		}
		return nil
	}
	for {
		chunk := spare
		if spare = nil; chunk == nil {
			chunk = make([]byte, chunkSize)
		}
		n, readErr := io.ReadFull(r, chunk)
		if readErr != nil && readErr != io.EOF && readErr != io.ErrUnexpectedEOF {
			return readErr
		}
		if n > 0 {
			ack, err := s.chunks.PublishAsync(subject, chunk[:n])
			if err != nil {
				return err
			}
			inFlight = append(inFlight, ack)
			info.Size, info.Chunks = info.Size+uint64(n), info.Chunks+1
		}
		if readErr != nil {
			return await(0)
		}
		if err := await(chunksInFlight - 1); err != nil {
			return err
		}
	}
}

// putDescription stores the description of a blob in place of an earlier one.
func (s *Store) putDescription(ctx context.Context, info jetstream.ObjectInfo, opts ...jetstream.PublishOpt) error {
	body, err := json.Marshal(info)
	if err != nil {
		return err
	}
	m := nats.NewMsg(MetaSubject(info.Name))
	m.Data = body
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	_, err = s.js.PublishMsg(ctx, m, opts...)
	return err
}

// purgeChunks removes content that no blob refers to any more. Content that it cannot remove is never read.
func (s *Store) purgeChunks(ctx context.Context, nuid string) {
	if stream, err := s.js.Stream(ctx, Stream); err == nil {
		_ = stream.Purge(ctx, jetstream.WithPurgeSubject(ChunkSubject(nuid)))
	}
}

// MetaSubject returns the subject of the description of a blob, as the object store names it.
func MetaSubject(name string) string {
	return "$O." + Bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

// ChunkSubject returns the subject of the chunks of a blob, whose description has the NUID.
func ChunkSubject(nuid string) string { return "$O." + Bucket + ".C." + nuid }

// writable returns the bucket for writing. A store that is open for reading only has none.
func (s *Store) writable() (jetstream.ObjectStore, error) {
	if s.bucket == nil {
		return nil, errors.New("the store is open for reading only")
	}
	return s.bucket, nil
}

// Open reads a stored blob, in constant memory. It reads the bucket's messages directly (ADR-20). The client's Get
// needs a consumer, which a reader's account may not create.
func (s *Store) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	info, _, err := s.describe(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("open blob %s: %w", name, err)
	}
	if path := OffloadedTo(&info); path != "" {
		r, err := openFile(path)
		if err != nil { // the content is lost
			return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
		}
		return r, nil
	}
	r, w := io.Pipe()
	go func() {
		_, err := s.direct.Read(ctx, Stream, ChunkSubject(info.NUID), 0, func(m *nats.Msg, _ uint64) error {
			_, err := w.Write(m.Data)
			return err
		})
		w.CloseWithError(err)
	}()
	return r, nil
}

// ReadEnd returns the end of a stored blob, at most n bytes. It reads only the last messages of a large one.
func (s *Store) ReadEnd(ctx context.Context, name string, n int) (end []byte, err error) {
	info, seq, err := s.describe(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read the end of blob %s: %w", name, err)
	}
	if path := OffloadedTo(&info); path != "" {
		return readFileEnd(path, int64(n))
	}
	for back := uint64(2); ; back *= 8 { // the chunks precede the description, mixed with chunks of other blobs
		after := seq - min(seq, back)
		end = nil
		_, err := s.direct.Read(ctx, Stream, ChunkSubject(info.NUID), after, func(m *nats.Msg, _ uint64) error {
			end = append(end, m.Data...)
			end = end[max(0, len(end)-n):]
			return nil
		})
		if err != nil || len(end) == n || after == 0 {
			return end, err
		}
	}
}

// describe returns the bucket's description of a blob, and the sequence of that message.
func (s *Store) describe(ctx context.Context, name string) (info jetstream.ObjectInfo, seq uint64, err error) {
	_, err = s.direct.Read(ctx, Stream, MetaSubject(name), 0, func(m *nats.Msg, at uint64) error {
		info = jetstream.ObjectInfo{} // a restored bucket may hold an older one, too
		if seq = at; json.Unmarshal(m.Data, &info) != nil {
			return fmt.Errorf("its description: %w", ErrDamaged)
		}
		return nil
	})
	if err == nil && (info.NUID == "" || info.Deleted) {
		err = ErrNotFound
	}
	return info, seq, err
}

// ErrNotFound means that no blob has the name. ErrDamaged means that the content differs from the stored content.
var (
	ErrNotFound = errors.New("no such blob")
	ErrDamaged  = errors.New("the stored content is damaged")
)

const hashPrefix = "sha256-"

// HashName returns the name under which PutByHash stores a body.
func HashName(body []byte) string {
	sum := sha256.Sum256(body)
	return hashPrefix + hex.EncodeToString(sum[:])
}

// PutByHash stores a body under its own hash, so that storing it again stores nothing new. Like Put it redacts nothing.
func (s *Store) PutByHash(ctx context.Context, body []byte) (events.Blob, error) {
	b := events.Blob{Name: HashName(body), Size: int64(len(body))}
	b.SHA256 = strings.TrimPrefix(b.Name, hashPrefix)
	bucket, err := s.writable()
	if err != nil {
		return events.Blob{}, fmt.Errorf("store blob %s: %w", b.Name, err)
	}
	info, err := bucket.GetInfo(ctx, b.Name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return s.Put(ctx, b.Name, bytes.NewReader(body))
	}
	if err != nil {
		return events.Blob{}, fmt.Errorf("look up blob %s: %w", b.Name, err)
	}
	switch whole, err := s.isWhole(ctx, info, b); {
	case err != nil:
		return events.Blob{}, fmt.Errorf("look up blob %s: %w", b.Name, err)
	case !whole:
		return s.Put(ctx, b.Name, bytes.NewReader(body))
	}
	return b, nil
}

// isWhole reports whether all of a blob is stored. A process that ends while it stores one may leave a part.
func (s *Store) isWhole(ctx context.Context, info *jetstream.ObjectInfo, b events.Blob) (bool, error) {
	if path := OffloadedTo(info); path != "" {
		sum, err := hex.DecodeString(b.SHA256)
		return err == nil && fileHolds(path, sum), nil
	}
	stream, err := s.js.Stream(ctx, Stream)
	if err != nil {
		return false, err
	}
	chunks := ChunkSubject(info.NUID)
	stored, err := stream.Info(ctx, jetstream.WithSubjectFilter(chunks))
	if err != nil {
		return false, err
	}
	return info.Size == uint64(b.Size) && stored.State.Subjects[chunks] == uint64(info.Chunks), nil
}

// IsLost reports whether an error of Read means that the content is missing or damaged.
func IsLost(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrDamaged) || errors.Is(err, ErrUnreadable)
}

// Read returns the whole content of a blob. The server that answers may lag behind the others of a cluster, or close
// its store, so Read reads again while the stream's leader has the blob, as long as readTimeout allows.
func (s *Store) Read(ctx context.Context, b events.Blob) ([]byte, error) {
	for began := time.Now(); ; time.Sleep(replicaPause) {
		content, err := s.readOnce(ctx, b)
		if !IsLost(err) || errors.Is(err, ErrUnreadable) { // no other server has a copy
			return content, err
		}
		timeout, lookupErr := s.readTimeout(ctx, b.Name)
		if lookupErr != nil {
			return nil, fmt.Errorf("look for blob %s: %w", b.Name, lookupErr)
		}
		if time.Since(began) >= timeout {
			return nil, err
		}
	}
}

// replicaPause is the time between two reads of a content that a lagging server lacks.
const replicaPause = 100 * time.Millisecond

// How long a content is read again if the leader has it. A single server has no lagging replica, so its time is short.
const (
	singleServerTimeout = time.Second
	clusterTimeout      = 30 * time.Second
)

// readTimeout returns how long a missing or damaged content is read again, 0 if the leader of the stream has none.
func (s *Store) readTimeout(ctx context.Context, name string) (time.Duration, error) {
	stream, err := s.js.Stream(ctx, Stream)
	if err != nil {
		return 0, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(MetaSubject(name)))
	switch {
	case err != nil:
		return 0, err
	case len(info.State.Subjects) == 0:
		return 0, nil
	case info.Config.Replicas > 1:
		return clusterTimeout, nil
	}
	return singleServerTimeout, nil
}

// readOnce reads the content of a blob, and checks its hash.
func (s *Store) readOnce(ctx context.Context, b events.Blob) ([]byte, error) {
	r, err := s.Open(ctx, b.Name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", b.Name, err)
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != b.SHA256 {
		return nil, fmt.Errorf("read blob %s: %w: it does not match its hash", b.Name, ErrDamaged)
	}
	return content, nil
}
