package log_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
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
	"pocketcoder/ops/natsconf"
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
	reader, err := log.Attach(nc, "$JS.API")
	is.NoErr(err)
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
		for _, got := range [][]events.Event{folded, read(t, l, 0), read(t, reader, 0)} {
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

// A reader attached with the operator's or the observer's rights, which end at reading.
func TestReaderWithReadOnlyRights(t *testing.T) {
	is := is.New(t)
	keys, err := natsconf.LoadKeys(t.TempDir())
	is.NoErr(err)
	config := natsconf.Config{Name: "test", Listen: "127.0.0.1:0", StoreDir: t.TempDir(), Keys: keys.Public,
		Pools: []string{"local"}}
	s, err := natsconf.Start(t.Context(), config)
	is.NoErr(err)
	t.Cleanup(func() { s.Close() })
	connect := func(id natsconf.Identity) *nats.Conn {
		opts, err := keys.Options(id, "test")
		is.NoErr(err)
		opts = append(opts, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) { // unlike a restarting server, it closes the connection at once
				t.Errorf("%s: %v", id, err)
			}
		}))
		nc, err := nats.Connect(s.ClientURL(), opts...)
		is.NoErr(err)
		t.Cleanup(nc.Close)
		return nc
	}
	owner := eventstest.Open(t, connect(natsconf.Core))
	large := eventOfSize(t, "evt_2", 2<<20)
	for _, e := range []events.Event{eventOfSize(t, "evt_1", 10), large, eventOfSize(t, "evt_3", 10)} {
		_, err := owner.Append(t.Context(), e)
		is.NoErr(err)
	}
	output := make([]byte, 5<<20)
	rand.NewChaCha8([32]byte{}).Read(output)
	blob, err := owner.Blobs.Put(t.Context(), "x1.stdout", bytes.NewReader(output))
	is.NoErr(err)
	is.Equal(blob.Size, int64(len(output)))
	sum := sha256.Sum256(output)
	is.Equal(blob.SHA256, hex.EncodeToString(sum[:]))

	for _, id := range []natsconf.Identity{natsconf.Operator, natsconf.Observer} {
		l, err := log.Attach(connect(id), natsconf.ReaderAPI)
		is.NoErr(err)
		got := read(t, l, 0)
		is.Equal(len(got), 3)
		is.True(bytes.Equal(got[1].Data, large.Data))
		var folded []events.Event
		last, err := l.Fold(t.Context(), events.ChatFilter("chat1"), 1, func(e events.Event) error {
			folded = append(folded, e)
			return nil
		})
		is.NoErr(err)
		is.Equal(last, uint64(3))
		is.Equal(len(folded), 2)
		is.True(bytes.Equal(folded[0].Data, large.Data))
		is.True(folded[0].Time.Equal(got[1].Time))
		newest, err := l.Last(t.Context())
		is.NoErr(err)
		is.Equal(newest, uint64(3))
		r, err := l.Blobs.Open(t.Context(), blob.Name)
		is.NoErr(err)
		back, err := io.ReadAll(r)
		is.NoErr(err)
		is.NoErr(r.Close())
		is.True(bytes.Equal(back, output))

		deltas, follow := make(chan log.Delta, 1), t.Context()
		go l.FollowDeltas(follow, events.ChatDeltaFilters("chat1"), func(d log.Delta) {
			select {
			case deltas <- d:
			default:
			}
		})
		d := log.Delta{Subject: events.ExecDeltaSubject("chat1", "x1"), Type: log.ExecOutput, Stream: "stderr", Offset: 7,
			Data: []byte("hi")}
		is.Equal(publishUntilSeen(t, owner, d, deltas), d)
	}

	l, err := log.Attach(connect(natsconf.Observer), natsconf.ReaderAPI)
	is.NoErr(err)
	arrived := make(chan log.Batch, 10)
	go l.Read(t.Context(), 3, nil, func(b log.Batch) error { arrived <- b; return nil })
	is.Equal(len((<-arrived).Events), 0)
	config.Listen = s.Addr().String()
	s.Close()
	s, err = natsconf.Start(t.Context(), config)
	is.NoErr(err)
	appended := eventOfSize(t, "evt_4", 10)
	expect.Eventually(t, "the owner is connected again", func() bool {
		_, err := owner.Append(t.Context(), appended)
		return err == nil
	})
	is.Equal((<-arrived).Events[0].Seq, uint64(4)) // a server that restarts does not end a read
}
