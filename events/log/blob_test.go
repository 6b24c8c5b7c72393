package log_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events/eventstest"
	"pocketcoder/events/log/blob"
	"pocketcoder/events/log/direct"
	"pocketcoder/ops/expect"
)

func bucketOf(t *testing.T, nc *nats.Conn) jetstream.ObjectStore {
	t.Helper()
	is := is.New(t)
	js, err := jetstream.New(nc)
	is.NoErr(err)
	bucket, err := js.ObjectStore(t.Context(), blob.Bucket)
	is.NoErr(err)
	return bucket
}

// attach returns a store that is open for reading only.
func attach(t *testing.T, nc *nats.Conn) *blob.Store {
	t.Helper()
	js, err := jetstream.New(nc)
	is.New(t).NoErr(err)
	return blob.Attach(js, direct.Reader{Conn: nc, Prefix: "$JS.API"})
}

func contentOf(t *testing.T, store *blob.Store, name string) string {
	t.Helper()
	r, err := store.Open(t.Context(), name)
	is.New(t).NoErr(err)
	defer r.Close()
	body, err := io.ReadAll(r)
	is.New(t).NoErr(err)
	return string(body)
}

func TestReadReturnsOnlyAContentThatMatchesItsHash(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	store := eventstest.Open(t, nc).Blobs
	stored, err := store.PutByHash(t.Context(), []byte("the content"))
	is.NoErr(err)
	for _, store := range []*blob.Store{store, attach(t, nc)} {
		content, err := store.Read(t.Context(), stored)
		is.NoErr(err)
		is.Equal(string(content), "the content")
	}
	_, err = store.Put(t.Context(), stored.Name, strings.NewReader("The content"))
	is.NoErr(err)
	content, err := store.Read(t.Context(), stored)
	is.True(errors.Is(err, blob.ErrDamaged))
	is.Equal(content, nil)
	stored.Name = "missing"
	_, err = store.Read(t.Context(), stored)
	is.True(errors.Is(err, blob.ErrNotFound))
}

// A restored bucket holds an older description of a blob behind which a newer one follows.
func TestLastDescriptionOfABlobIsUsed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	store := eventstest.Open(t, nc).Blobs
	text := strings.Repeat("content\n", 30_000)
	stored, err := store.PutByHash(t.Context(), []byte(text))
	is.NoErr(err)
	bucket := bucketOf(t, nc)
	info, err := bucket.GetInfo(t.Context(), stored.Name)
	is.NoErr(err)
	newer, err := json.Marshal(info)
	is.NoErr(err)
	info.Metadata = map[string]string{"file": "/gone"}
	older, err := json.Marshal(info)
	is.NoErr(err)
	js, err := jetstream.New(nc)
	is.NoErr(err)
	for _, description := range [][]byte{older, newer} {
		_, err := js.Publish(t.Context(), blob.MetaSubject(stored.Name), description)
		is.NoErr(err)
	}
	is.Equal(contentOf(t, store, stored.Name), text)
}

// The server refuses what it has not stored yet beyond 128 MiB.
func TestBodyLargerThanTheServersQueueIsStored(t *testing.T) {
	expect.Long(t, "stores 160 MiB")
	is := is.New(t)
	store := eventstest.Open(t, eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))).Blobs
	body := make([]byte, 160<<20)
	rand.NewChaCha8([32]byte{}).Read(body)
	b, err := store.PutByHash(t.Context(), body)
	is.NoErr(err)
	r, err := store.Open(t.Context(), b.Name)
	is.NoErr(err)
	defer r.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	is.NoErr(err)
	is.Equal([]any{n, hex.EncodeToString(sum.Sum(nil))}, []any{int64(len(body)), b.SHA256})
}

func TestIncompleteBodyIsStoredAgain(t *testing.T) {
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	store := eventstest.Open(t, nc).Blobs
	body := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(body)
	_, err := store.PutByHash(t.Context(), body)
	is.NoErr(err)
	js, err := jetstream.New(nc)
	is.NoErr(err)
	stream, err := js.Stream(t.Context(), blob.Stream)
	is.NoErr(err)
	is.NoErr(stream.DeleteMsg(t.Context(), 2)) // one of its chunks
	b, err := store.PutByHash(t.Context(), body)
	is.NoErr(err)
	r, err := store.Open(t.Context(), b.Name)
	is.NoErr(err)
	defer r.Close()
	got, err := io.ReadAll(r)
	is.NoErr(err)
	is.True(bytes.Equal(got, body))
}

func TestReadEndReadsOnlyItsBlob(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	store := eventstest.Open(t, eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))).Blobs
	content := make([]byte, 1<<20+3) // the last of its messages has 3 bytes
	for i := range content {
		content[i] = byte(i % 251)
	}
	paused, goOn := io.Pipe()
	stored := make(chan error)
	go func() {
		_, err := store.Put(t.Context(), "slow", paused)
		stored <- err
	}()
	_, err := goOn.Write(content[:1<<20])
	is.NoErr(err)
	for i := range 5 { // while it is stored
		_, err := store.Put(t.Context(), fmt.Sprintf("other%d", i), bytes.NewReader(content[:600<<10]))
		is.NoErr(err)
	}
	_, err = goOn.Write(content[1<<20:])
	is.NoErr(err)
	is.NoErr(goOn.Close())
	is.NoErr(<-stored)
	for _, n := range []int{0, 2, 3, 10, 600 << 10, len(content), len(content) + 1} {
		end, err := store.ReadEnd(t.Context(), "slow", n)
		is.NoErr(err)
		is.True(bytes.Equal(end, content[max(0, len(content)-n):]))
	}
	_, err = store.ReadEnd(t.Context(), "none", 10)
	is.True(errors.Is(err, blob.ErrNotFound))
}
