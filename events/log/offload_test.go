package log_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/log/blob"
	"pocketcoder/ops/expect"
)

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
		is.True(errors.Is(malformed[0], blob.ErrUnreadable) || errors.Is(malformed[0], blob.ErrNotFound))
		is.NoErr(malformed[1])
	}
}
