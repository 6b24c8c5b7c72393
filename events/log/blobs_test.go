package log_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/log/blob"
	"pocketcoder/ops/expect"
)

// eventOfSize makes an OpenCode event with a body of exactly n bytes.
func eventOfSize(t *testing.T, id string, n int) events.Event {
	t.Helper()
	return eventOfChatOfSize(t, "chat1", id, n)
}

func eventOfChatOfSize(t *testing.T, chat, id string, n int) events.Event {
	t.Helper()
	body := `"` + strings.Repeat("x", n-2) + `"`
	e, err := events.NewOpenCode(chat, "local", id, -1, events.OpenCode{Type: "session.updated",
		Properties: json.RawMessage(body)})
	is.New(t).NoErr(err)
	return e
}

func blobNames(t *testing.T, nc *nats.Conn) (names []string, blobs jetstream.ObjectStore) {
	t.Helper()
	is := is.New(t)
	js, err := jetstream.New(nc)
	is.NoErr(err)
	blobs, err = js.ObjectStore(t.Context(), "BLOBS")
	is.NoErr(err)
	list, err := blobs.List(t.Context())
	if errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, blobs
	}
	is.NoErr(err)
	for _, o := range list {
		names = append(names, o.Name)
	}
	return names, blobs
}

func TestBodyIsInlineUpToTheLimit(t *testing.T) {
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	is.Equal(log.MaxInline, 262_144) // the limit that the stored form promises
	at, over := eventOfSize(t, "evt_at", log.MaxInline), eventOfSize(t, "evt_over", log.MaxInline+1)
	_, err := l.Append(t.Context(), at)
	is.NoErr(err)
	names, _ := blobNames(t, nc)
	is.Equal(len(names), 0)
	_, err = l.Append(t.Context(), over)
	is.NoErr(err)
	_, err = l.Append(t.Context(), eventOfSize(t, "evt_again", log.MaxInline+1))
	is.NoErr(err)
	names, _ = blobNames(t, nc)
	sum := sha256.Sum256(over.Data)
	is.Equal(names, []string{"sha256-" + hex.EncodeToString(sum[:])}) // the same body once
	got := read(t, l, 0)
	is.Equal(len(got), 3)
	for i, e := range []events.Event{at, over, over} {
		is.True(bytes.Equal(got[i].Data, e.Data))
	}
}

// A blob that is damaged on disk, or missing in a restored copy, must not stop the system.
func TestEventWithALostBodyIsMalformed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	for _, e := range []events.Event{eventOfSize(t, "evt_over", log.MaxInline+1), eventOfSize(t, "evt_after", 10)} {
		_, err := l.Append(t.Context(), e)
		is.NoErr(err)
	}
	names, blobs := blobNames(t, nc)
	js, err := jetstream.New(nc)
	is.NoErr(err)
	damage := func(want error, text string) {
		t.Helper()
		var folded []events.Event
		_, err := l.Fold(t.Context(), events.ChatFilter("chat1"), 0, func(e events.Event) error {
			folded = append(folded, e)
			return nil
		})
		is.NoErr(err)
		for _, got := range [][]events.Event{folded, read(t, l, 0)} {
			is.Equal(len(got), 2)
			is.True(errors.Is(got[0].Malformed, want))
			expect.Contains(t, got[0].Malformed.Error(), "read #1 evt.chat.chat1.opencode.session.updated: "+text)
			is.Equal([]any{got[0].Seq, got[0].ID}, []any{uint64(1), "evt_over"}) // the reference is known
			is.Equal(got[1].Malformed, nil)
		}
	}
	_, err = blobs.PutBytes(t.Context(), names[0], []byte(`"another"`))
	is.NoErr(err)
	damage(blob.ErrDamaged, "read blob "+names[0])
	meta := "$O.BLOBS.M." + base64.URLEncoding.EncodeToString([]byte(names[0]))
	stream, err := js.Stream(t.Context(), "OBJ_BLOBS")
	is.NoErr(err)
	is.NoErr(stream.Purge(t.Context(), jetstream.WithPurgeSubject(meta)))
	damage(blob.ErrNotFound, "open blob "+names[0])
	_, err = js.Publish(t.Context(), meta, []byte("\x00"))
	is.NoErr(err)
	damage(blob.ErrDamaged, "open blob "+names[0])
	_, err = l.Blobs.Open(t.Context(), "never stored * > . ä")
	is.True(errors.Is(err, blob.ErrNotFound))
}
