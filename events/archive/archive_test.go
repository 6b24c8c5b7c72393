package archive_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/events/archive"
	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
)

// messages returns events of a chat.
func messages(t testing.TB, n int) (list []events.Event) {
	t.Helper()
	for i := range n {
		e, err := events.New("c1", events.ActorSystem, events.MessageSubmitted{Message: fmt.Sprint("message ", i)})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// copied writes the messages of a stream to a file.
func copied(t testing.TB, s archive.Stream, from, to uint64) (file []byte, digest string) {
	t.Helper()
	var b bytes.Buffer
	w := archive.NewWriter(&b)
	if err := errors.Join(s.Read(t.Context(), from, to, w.Add), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), w.String()
}

func ignore(archive.Entry) {}

func TestRestoredEventsAreTheSameByteForByte(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	last, err := l.AppendAll(t.Context(), messages(t, 700)) // two atomic batches, more than a window of requests
	is.NoErr(err)
	stream := archive.Stream{Conn: nc, Name: "EVENTS"}
	info, err := stream.Info(t.Context())
	is.NoErr(err)
	first, _ := copied(t, stream, 1, 300)
	second, _ := copied(t, stream, 301, last)
	_, digest := copied(t, stream, 1, last)

	to := eventstest.Server(t, expect.MemoryDir(t))
	is.NoErr(archive.Restore(to.GlobalAccount(), info, nil, func(add func(archive.Entry) error) error {
		return errors.Join(archive.ReadFile(bytes.NewReader(first), add), archive.ReadFile(bytes.NewReader(second), add))
	}))
	restored := archive.Stream{Conn: eventstest.Conn(t, to), Name: "EVENTS"}
	got, err := restored.Digest(t.Context(), 1, last, ignore)
	is.NoErr(err)
	is.Equal(got, digest)
	after, err := restored.Info(t.Context())
	is.NoErr(err)
	is.Equal(after.State, info.State)
	is.Equal(string(after.Config), string(info.Config)) // DenyDelete, compression and all else

	is.Equal(storedMessage(t, restored.Conn, 5), storedMessage(t, nc, 5)) // and so the client library has it

	reopened := eventstest.Open(t, restored.Conn) // the log goes on behind the last event
	next, err := reopened.AppendAll(t.Context(), messages(t, 1))
	is.NoErr(err)
	is.Equal(next, last+1)
}

// storedMessage returns a message of EVENTS with its time, as text.
func storedMessage(t *testing.T, nc *nats.Conn, seq uint64) string {
	t.Helper()
	is := is.New(t)
	js, err := jetstream.New(nc)
	is.NoErr(err)
	stream, err := js.Stream(t.Context(), "EVENTS")
	is.NoErr(err)
	m, err := stream.GetMsg(t.Context(), seq)
	is.NoErr(err)
	return fmt.Sprintf("%d %s %s %v %s", m.Sequence, m.Time.Format(time.RFC3339Nano), m.Subject, m.Header, m.Data)
}

func TestACopyEndsBehindAnAtomicBatch(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	for _, n := range []int{1, 10, 1} {
		_, err := l.AppendAll(t.Context(), messages(t, n))
		is.NoErr(err)
	}
	stream := archive.Stream{Conn: nc, Name: "EVENTS"}
	for seq, want := range map[uint64]uint64{1: 1, 2: 11, 6: 11, 11: 11, 12: 12} {
		end, err := stream.BatchEnd(t.Context(), seq)
		is.NoErr(err)
		is.Equal(end, want)
	}
}

func TestDeletedMessagesStayDeleted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	js, err := jetstream.New(nc)
	is.NoErr(err)
	from, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "X", Subjects: []string{"x.*"},
		Storage: jetstream.FileStorage})
	is.NoErr(err)
	for i := range 10 {
		_, err := js.Publish(t.Context(), fmt.Sprint("x.", i), []byte(strings.Repeat("y", i)))
		is.NoErr(err)
	}
	for _, seq := range []uint64{1, 2, 5, 10} { // at the beginning, between, at the end
		is.NoErr(from.DeleteMsg(t.Context(), seq))
	}
	c, err := from.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "gate",
		AckPolicy: jetstream.AckExplicitPolicy})
	is.NoErr(err)
	batch, err := c.Fetch(3)
	is.NoErr(err)
	acked := 0
	for m := range batch.Messages() { // 3, 4 and 6; 6 is not acknowledged
		if acked++; acked < 3 {
			is.NoErr(m.DoubleAck(t.Context()))
		}
	}
	stream := archive.Stream{Conn: nc, Name: "X"}
	info, err := stream.Info(t.Context())
	is.NoErr(err)
	is.Equal(info.State.First, uint64(3))
	is.Equal(info.State.Last, uint64(10))
	consumers, err := stream.Consumers(t.Context())
	is.NoErr(err)
	file, digest := copied(t, stream, 1, 10)

	to := eventstest.Server(t, expect.MemoryDir(t))
	is.NoErr(archive.Restore(to.GlobalAccount(), info, consumers, func(add func(archive.Entry) error) error {
		return archive.ReadFile(bytes.NewReader(file), add)
	}))
	restored := archive.Stream{Conn: eventstest.Conn(t, to), Name: "X"}
	got, err := restored.Digest(t.Context(), 1, 10, ignore)
	is.NoErr(err)
	is.Equal(got, digest)
	after, err := restored.Info(t.Context())
	is.NoErr(err)
	is.Equal(after.State.First, uint64(3))
	is.Equal(after.State.Last, uint64(10))
	js, err = jetstream.New(restored.Conn)
	is.NoErr(err)
	c, err = js.Consumer(t.Context(), "X", "gate")
	is.NoErr(err)
	batch, err = c.Fetch(1)
	is.NoErr(err)
	meta, err := (<-batch.Messages()).Metadata()
	is.NoErr(err)
	is.Equal(meta.Sequence.Stream, uint64(6)) // what was not acknowledged comes again
}

func TestAFileThatWasCutOrChangedIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	last, err := eventstest.Open(t, nc).AppendAll(t.Context(), messages(t, 3))
	is.NoErr(err)
	stream := archive.Stream{Conn: nc, Name: "EVENTS"}
	info, err := stream.Info(t.Context())
	is.NoErr(err)
	file, _ := copied(t, stream, 1, last)
	read := func(file []byte) (content string, refused bool) {
		err := archive.ReadFile(bytes.NewReader(file), func(e archive.Entry) error {
			content += fmt.Sprintf("%+v\n", e)
			return nil
		})
		return content, errors.Is(err, archive.ErrDamaged)
	}
	whole, refused := read(file)
	is.True(!refused)
	for i := range file {
		_, refused := read(file[:i])
		is.True(refused) // cut
		changed := bytes.Clone(file)
		changed[i] ^= 0x20
		content, refused := read(changed)
		is.True(refused || content == whole) // a changed reference of the compression may lead to an equal text
	}
	to := eventstest.Server(t, expect.MemoryDir(t))
	err = archive.Restore(to.GlobalAccount(), info, nil, func(add func(archive.Entry) error) error {
		return archive.ReadFile(bytes.NewReader(file[:len(file)/2]), add)
	})
	is.True(errors.Is(err, archive.ErrDamaged)) // the reason comes through the server
}

func TestADamagedMessageIsNotTakenForADeletedOne(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := t.TempDir()
	s := eventstest.Server(t, dir)
	nc := eventstest.Conn(t, s)
	last, err := eventstest.Open(t, nc).AppendAll(t.Context(), messages(t, 5))
	is.NoErr(err)
	nc.Close()
	s.Shutdown()
	s.WaitForShutdown()
	blocks, err := filepath.Glob(filepath.Join(dir, "jetstream", "$G", "streams", "EVENTS", "msgs", "*.blk"))
	is.NoErr(err)
	is.Equal(len(blocks), 1)
	block, err := os.ReadFile(blocks[0])
	is.NoErr(err)
	is.NoErr(os.WriteFile(blocks[0], bytes.Replace(block, []byte("message 2"), []byte("massage 2"), 1), 0o600))
	nc = eventstest.Conn(t, eventstest.Server(t, dir))
	var read []uint64
	err = archive.Stream{Conn: nc, Name: "EVENTS"}.Read(t.Context(), 1, last, func(e archive.Entry) error {
		read = append(read, e.Seq)
		return nil
	})
	is.True(err != nil)
	expect.Contains(t, err.Error(), "of stream EVENTS: the server has it and cannot read it: it is damaged")
}

func BenchmarkCopy(b *testing.B) {
	is := is.New(b)
	const n = 100_000
	nc := eventstest.Conn(b, eventstest.Server(b, expect.MemoryDir(b)))
	_, err := eventstest.Open(b, nc).AppendAll(b.Context(), messages(b, n))
	is.NoErr(err)
	stream := archive.Stream{Conn: nc, Name: "EVENTS"}
	info, err := stream.Info(b.Context())
	is.NoErr(err)
	var file []byte
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			file, _ = copied(b, stream, 1, n)
		}
		b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("restore", func(b *testing.B) {
		for b.Loop() {
			to := eventstest.Server(b, b.TempDir())
			is.NoErr(archive.Restore(to.GlobalAccount(), info, nil, func(add func(archive.Entry) error) error {
				return archive.ReadFile(bytes.NewReader(file), add)
			}))
		}
		b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "events/s")
	})
}
