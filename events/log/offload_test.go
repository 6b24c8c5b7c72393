package log_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/log/blob"
	"pocketcoder/events/log/file"
	"pocketcoder/expect"
)

func contentOf(t *testing.T, l *log.Log, name string) string {
	t.Helper()
	r, err := l.Blobs.Open(t.Context(), name)
	is.New(t).NoErr(err)
	defer r.Close()
	body, err := io.ReadAll(r)
	is.New(t).NoErr(err)
	return string(body)
}

func TestOffloadedBlobIsReadFromItsFile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l, dir := eventstest.Open(t, nc), expect.MemoryDir(t)
	reader, err := log.Attach(nc, "$JS.API")
	is.NoErr(err)
	text := strings.Repeat("line of output\n", 120_000)
	stored, err := l.Blobs.PutByHash(t.Context(), []byte(text))
	is.NoErr(err)
	_, blobs := blobNames(t, nc)
	chunks := func() uint64 {
		info, err := blobs.GetInfo(t.Context(), stored.Name)
		is.NoErr(err)
		js, err := jetstream.New(nc)
		is.NoErr(err)
		stream, err := js.Stream(t.Context(), "OBJ_BLOBS")
		is.NoErr(err)
		subject := "$O.BLOBS.C." + info.NUID
		state, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(subject))
		is.NoErr(err)
		return state.State.Subjects[subject]
	}
	is.Equal(chunks(), uint64(4))
	for _, want := range []bool{true, false} {
		moved, err := l.Blobs.Offload(t.Context(), stored.Name, dir)
		is.NoErr(err)
		is.Equal(moved, want)
		is.Equal(chunks(), uint64(0))
	}
	file := filepath.Join(dir, stored.Name)
	is.Equal(expect.ReadFile(t, file), text)
	for _, l := range []*log.Log{l, reader} {
		is.Equal(contentOf(t, l, stored.Name), text)
		end, err := l.Blobs.ReadEnd(t.Context(), stored.Name, 20)
		is.NoErr(err)
		is.Equal(string(end), text[len(text)-20:])
	}

	_, err = l.Blobs.PutByHash(t.Context(), []byte(text)) // another event has the same content
	is.NoErr(err)
	is.Equal(chunks(), uint64(0)) // it stays where it is: nothing would name the file

	is.NoErr(os.Remove(file))
	_, err = reader.Blobs.Open(t.Context(), stored.Name)
	is.True(errors.Is(err, blob.ErrNotFound))
	expect.Contains(t, err.Error(), file)

	is.NoErr(os.WriteFile(file, []byte("damaged"), 0o600))
	_, err = l.Blobs.PutByHash(t.Context(), []byte(text))
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
	l, dir := eventstest.Open(t, nc), expect.MemoryDir(t)
	stored, err := l.Blobs.Put(t.Context(), "x1.stdout", strings.NewReader("all of it"))
	is.NoErr(err)
	_, err = l.Blobs.Offload(t.Context(), stored.Name, filepath.Join(dir, "missing"))
	is.True(errors.Is(err, os.ErrNotExist))
	is.Equal(contentOf(t, l, stored.Name), "all of it")
	_, err = l.Blobs.Offload(t.Context(), "never-stored", dir)
	is.True(errors.Is(err, blob.ErrNotFound))
	_, err = l.Blobs.Put(t.Context(), "../x1", strings.NewReader("outside"))
	is.NoErr(err)
	_, err = l.Blobs.Offload(t.Context(), "../x1", dir)
	is.True(err != nil)

	_, blobs := blobNames(t, nc)
	info, err := blobs.GetInfo(t.Context(), stored.Name)
	is.NoErr(err)
	js, err := jetstream.New(nc)
	is.NoErr(err)
	stream, err := js.Stream(t.Context(), "OBJ_BLOBS")
	is.NoErr(err)
	is.NoErr(stream.Purge(t.Context(), jetstream.WithPurgeSubject("$O.BLOBS.C."+info.NUID)))
	_, err = l.Blobs.Offload(t.Context(), stored.Name, dir)
	is.True(errors.Is(err, blob.ErrDamaged))
	left, err := os.ReadDir(dir)
	is.NoErr(err)
	is.Equal(len(left), 0)
}

func TestEventWithAMissingFileIsMalformed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l, dir := eventstest.Open(t, nc), expect.MemoryDir(t)
	e := eventOfSize(t, "evt_over", log.MaxInline+1)
	_, err := l.Append(t.Context(), e)
	is.NoErr(err)
	_, err = l.Blobs.Offload(t.Context(), blob.HashName(e.Data), dir)
	is.NoErr(err)
	is.Equal(read(t, l, 0)[0].Malformed, nil)
	is.NoErr(os.RemoveAll(dir))
	_, err = l.Fold(t.Context(), events.ChatFilter("chat1"), 0, func(e events.Event) error {
		is.True(errors.Is(e.Malformed, blob.ErrNotFound))
		return nil
	})
	is.NoErr(err)
}

// A file can be open and yet not readable: its disk fails, or its server is gone. The event counts as lost, and
// readers go on.
func TestReaderSkipsAnUnreadableOffloadedBody(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l, dir := eventstest.Open(t, nc), expect.MemoryDir(t)
	e := eventOfSize(t, "evt_large", log.MaxInline+1)
	_, err := l.Append(t.Context(), e)
	is.NoErr(err)
	_, err = l.Append(t.Context(), eventOfSize(t, "evt_next", 100))
	is.NoErr(err)
	name := blob.HashName(e.Data)
	_, err = l.Blobs.Offload(t.Context(), name, dir)
	is.NoErr(err)
	path := filepath.Join(dir, name)
	for what, replace := range map[string]func() error{
		"a directory": func() error { return os.Mkdir(path, 0o700) },
		"a FIFO":      func() error { return syscall.Mkfifo(path, 0o600) },
		"a link":      func() error { return os.Symlink("/dev/zero", path) },
	} {
		is.NoErr(os.RemoveAll(path))
		is.NoErr(replace())
		var malformed []error
		_, err = l.Fold(t.Context(), events.ChatFilter("chat1"), 0, func(e events.Event) error {
			malformed = append(malformed, e.Malformed)
			return nil
		})
		is.NoErr(err) // what
		t.Log(what, malformed)
		is.Equal(len(malformed), 2)
		is.True(errors.Is(malformed[0], file.ErrUnreadable) || errors.Is(malformed[0], blob.ErrNotFound))
		is.NoErr(malformed[1])
	}
}

// A restored bucket holds an older description of a blob behind which a newer one follows.
func TestLastDescriptionOfABlobIsUsed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	text := strings.Repeat("content\n", 30_000)
	stored, err := l.Blobs.PutByHash(t.Context(), []byte(text))
	is.NoErr(err)
	_, blobs := blobNames(t, nc)
	info, err := blobs.GetInfo(t.Context(), stored.Name)
	is.NoErr(err)
	newer, err := json.Marshal(info)
	is.NoErr(err)
	info.Metadata = map[string]string{"file": "/gone"}
	older, err := json.Marshal(info)
	is.NoErr(err)
	js, err := jetstream.New(nc)
	is.NoErr(err)
	for _, description := range [][]byte{older, newer} {
		_, err := js.Publish(t.Context(), "$O.BLOBS.M."+base64.URLEncoding.EncodeToString([]byte(stored.Name)), description)
		is.NoErr(err)
	}
	is.Equal(contentOf(t, l, stored.Name), text)
}
