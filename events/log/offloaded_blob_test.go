package log_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events/eventstest"
	"pocketcoder/events/log/blob"
	"pocketcoder/ops/expect"
)

func TestOffloadedBlobIsReadFromItsFile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	store, dir := eventstest.Open(t, nc).Blobs, expect.MemoryDir(t)
	reader := attach(t, nc)
	text := strings.Repeat("line of output\n", 120_000)
	stored, err := store.PutByHash(t.Context(), []byte(text))
	is.NoErr(err)
	bucket := bucketOf(t, nc)
	chunks := func() uint64 {
		info, err := bucket.GetInfo(t.Context(), stored.Name)
		is.NoErr(err)
		js, err := jetstream.New(nc)
		is.NoErr(err)
		stream, err := js.Stream(t.Context(), blob.Stream)
		is.NoErr(err)
		subject := blob.ChunkSubject(info.NUID)
		state, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(subject))
		is.NoErr(err)
		return state.State.Subjects[subject]
	}
	is.Equal(chunks(), uint64(4))
	for _, want := range []bool{true, false} {
		moved, err := store.Offload(t.Context(), stored.Name, dir)
		is.NoErr(err)
		is.Equal(moved, want)
		is.Equal(chunks(), uint64(0))
	}
	file := filepath.Join(dir, stored.Name)
	is.Equal(expect.ReadFile(t, file), text)
	for _, store := range []*blob.Store{store, reader} {
		is.Equal(contentOf(t, store, stored.Name), text)
		end, err := store.ReadEnd(t.Context(), stored.Name, 20)
		is.NoErr(err)
		is.Equal(string(end), text[len(text)-20:])
	}

	_, err = store.PutByHash(t.Context(), []byte(text)) // another event has the same content
	is.NoErr(err)
	is.Equal(chunks(), uint64(0)) // it stays where it is: nothing would name the file

	is.NoErr(os.Remove(file))
	_, err = reader.Open(t.Context(), stored.Name)
	is.True(errors.Is(err, blob.ErrNotFound))
	expect.Contains(t, err.Error(), file)

	is.NoErr(os.WriteFile(file, []byte("damaged"), 0o600))
	_, err = store.PutByHash(t.Context(), []byte(text))
	is.NoErr(err)
	_, err = os.Stat(file)
	is.True(errors.Is(err, os.ErrNotExist))
	is.Equal(chunks(), uint64(4))
	is.Equal(contentOf(t, reader, stored.Name), text)
}

func TestFailedOffloadLeavesTheBlob(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	store, dir := eventstest.Open(t, nc).Blobs, expect.MemoryDir(t)
	stored, err := store.Put(t.Context(), "x1.stdout", strings.NewReader("all of it"))
	is.NoErr(err)
	_, err = store.Offload(t.Context(), stored.Name, filepath.Join(dir, "missing"))
	is.True(errors.Is(err, os.ErrNotExist))
	is.Equal(contentOf(t, store, stored.Name), "all of it")
	_, err = store.Offload(t.Context(), "never-stored", dir)
	is.True(errors.Is(err, blob.ErrNotFound))
	_, err = store.Put(t.Context(), "../x1", strings.NewReader("outside"))
	is.NoErr(err)
	_, err = store.Offload(t.Context(), "../x1", dir)
	is.True(err != nil)

	bucket := bucketOf(t, nc)
	info, err := bucket.GetInfo(t.Context(), stored.Name)
	is.NoErr(err)
	js, err := jetstream.New(nc)
	is.NoErr(err)
	stream, err := js.Stream(t.Context(), blob.Stream)
	is.NoErr(err)
	is.NoErr(stream.Purge(t.Context(), jetstream.WithPurgeSubject(blob.ChunkSubject(info.NUID))))
	_, err = store.Offload(t.Context(), stored.Name, dir)
	is.True(errors.Is(err, blob.ErrDamaged))
	left, err := os.ReadDir(dir)
	is.NoErr(err)
	is.Equal(len(left), 0)
}
