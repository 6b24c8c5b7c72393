package log_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
)

// Facts about the server on which this package depends. A test fails if a new version of the server changes one.

// openStream makes a log and gives JetStream as the server has it, past this package.
func openStream(t *testing.T) (*nats.Conn, jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	eventstest.Open(t, nc)
	js, err := jetstream.New(nc)
	is.New(t).NoErr(err)
	s, err := js.Stream(t.Context(), "EVENTS")
	is.New(t).NoErr(err)
	return nc, js, s
}

// apiErrorCode is the JetStream API error code, 0 for none.
func apiErrorCode(t *testing.T, err error) int {
	t.Helper()
	var api *jetstream.APIError
	if err != nil && !errors.As(err, &api) {
		t.Fatalf("not an answer of the server: %v", err)
	}
	if err == nil {
		return 0
	}
	return int(api.ErrorCode)
}

func TestSequenceIsCheckedBeforeDuplicates(t *testing.T) {
	is := is.New(t)
	_, js, _ := openStream(t)
	const subject = "evt.chat.c1.created"
	first, err := js.Publish(t.Context(), subject, nil, jetstream.WithMsgID("1"),
		jetstream.WithExpectLastSequenceForSubject(0, "evt.chat.c1.>"))
	is.NoErr(err)
	// The same append again, as after a lost answer: a conflict, though its id is known.
	_, err = js.Publish(t.Context(), subject, nil, jetstream.WithMsgID("1"),
		jetstream.WithExpectLastSequenceForSubject(0, "evt.chat.c1.>"))
	is.Equal(apiErrorCode(t, err), 10071)
	again, err := js.Publish(t.Context(), subject, nil, jetstream.WithMsgID("1"))
	is.NoErr(err)
	is.True(again.Duplicate)
	is.Equal(again.Sequence, first.Sequence)
}

// batch publishes one atomic batch of messages with the given ids and returns the answer to its commit.
func batch(t *testing.T, nc *nats.Conn, ids ...string) (answer struct {
	Error *jetstream.APIError
	Seq   uint64
	Count int
}) {
	t.Helper()
	is := is.New(t)
	for i, id := range ids {
		m := nats.NewMsg("evt.chat.c1.created")
		m.Header.Set(nats.MsgIdHdr, id)
		m.Header.Set("Nats-Batch-Id", fmt.Sprint(ids))
		m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
		if i < len(ids)-1 {
			is.NoErr(nc.PublishMsg(m))
			continue
		}
		m.Header.Set("Nats-Batch-Commit", "1")
		got, err := nc.RequestMsgWithContext(t.Context(), m)
		is.NoErr(err)
		is.NoErr(json.Unmarshal(got.Data, &answer))
	}
	return answer
}

func TestAtomicBatchWithAStoredMessageIsRefused(t *testing.T) {
	is := is.New(t)
	nc, _, s := openStream(t)
	got := batch(t, nc, "1", "2", "3")
	is.Equal(got.Error, nil)
	is.Equal(got.Seq, uint64(3))
	is.Equal(got.Count, 3)
	got = batch(t, nc, "4", "2", "5")
	is.True(got.Error != nil)
	is.Equal(int(got.Error.ErrorCode), 10201)
	info, err := s.Info(t.Context())
	is.NoErr(err)
	is.Equal(info.State.Msgs, uint64(3)) // not even the new ones
}

// Every message of a batch may carry an expectation of its own, and each is compared with what was stored before the
// batch; only one on a literal subject that the batch has written already is refused.
func TestAtomicBatchChecksEveryExpectation(t *testing.T) {
	type message struct {
		subject, filter string
		last            int
	}
	for name, c := range map[string]struct {
		batch []message
		code  int
	}{
		"two that hold":                  {[]message{{"evt.chat.c1.updated", "evt.chat.c1.*", 1}, {"evt.chat.c2.created", "evt.chat.c2.*", 0}}, 0},
		"the second does not hold":       {[]message{{"evt.chat.c2.created", "evt.chat.c2.*", 0}, {"evt.chat.c1.updated", "evt.chat.c1.*", 0}}, 10071},
		"the first does not hold":        {[]message{{"evt.chat.c1.updated", "evt.chat.c1.*", 0}, {"evt.chat.c2.created", "", 0}}, 10071},
		"one says it twice":              {[]message{{"evt.chat.c1.updated", "evt.chat.c1.*", 1}, {"evt.chat.c1.updated", "evt.chat.c1.*", 1}}, 0},
		"a filter that matches earlier":  {[]message{{"evt.chat.c1.updated", "", 0}, {"evt.chat.c1.deleted", "evt.chat.c1.*", 1}}, 0},
		"its own subject":                {[]message{{"evt.chat.c2.created", "evt.chat.c2.created", 0}, {"evt.chat.c2.created", "", 0}}, 0},
		"a subject that is written then": {[]message{{"evt.chat.c2.updated", "evt.chat.c2.created", 0}, {"evt.chat.c2.created", "", 0}}, 0},
		"a subject that was written":     {[]message{{"evt.chat.c2.created", "", 0}, {"evt.chat.c2.updated", "evt.chat.c2.created", 0}}, 10164},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			nc, js, s := openStream(t)
			_, err := js.Publish(t.Context(), "evt.chat.c1.created", nil)
			is.NoErr(err)
			var answer struct{ Error *jetstream.APIError }
			for i, m := range c.batch {
				msg := nats.NewMsg(m.subject)
				msg.Header.Set("Nats-Batch-Id", "b")
				msg.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
				if m.filter != "" {
					msg.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.Itoa(m.last))
					msg.Header.Set("Nats-Expected-Last-Subject-Sequence-Subject", m.filter)
				}
				if i == 0 {
					is.NoErr(nc.PublishMsg(msg))
					continue
				}
				msg.Header.Set("Nats-Batch-Commit", "1")
				got, err := nc.RequestMsgWithContext(t.Context(), msg)
				is.NoErr(err)
				is.NoErr(json.Unmarshal(got.Data, &answer))
			}
			info, err := s.Info(t.Context())
			is.NoErr(err)
			if c.code == 0 {
				is.Equal(answer.Error, nil)
				is.Equal(info.State.Msgs, uint64(3))
				return
			}
			is.True(answer.Error != nil)
			is.Equal(int(answer.Error.ErrorCode), c.code)
			is.Equal(info.State.Msgs, uint64(1)) // nothing of it
		})
	}
}

func TestStoredEventsCannotBeDeleted(t *testing.T) {
	is := is.New(t)
	_, js, s := openStream(t)
	ack, err := js.Publish(t.Context(), "evt.chat.c1.created", nil)
	is.NoErr(err)
	for _, err := range []error{s.DeleteMsg(t.Context(), ack.Sequence), s.SecureDeleteMsg(t.Context(), ack.Sequence)} {
		is.True(err != nil && strings.Contains(err.Error(), "err_code=10057")) // not permitted
	}
	is.True(apiErrorCode(t, s.Purge(t.Context())) != 0)
	open := log.EventsConfig(log.DefaultOptions)
	open.DenyDelete = false
	_, err = js.UpdateStream(t.Context(), open)
	is.Equal(apiErrorCode(t, err), 10052) // and the setting cannot be undone
	open = log.EventsConfig(log.DefaultOptions)
	open.DenyPurge = false
	_, err = js.UpdateStream(t.Context(), open)
	is.Equal(apiErrorCode(t, err), 10052)
	info, err := s.Info(t.Context())
	is.NoErr(err)
	is.Equal(info.State.Msgs, uint64(1))
}

func TestFullStreamRefusesAppends(t *testing.T) {
	is := is.New(t)
	_, js, s := openStream(t)
	full := log.EventsConfig(log.DefaultOptions)
	full.MaxMsgs = 2
	_, err := js.UpdateStream(t.Context(), full)
	is.NoErr(err)
	for i := range 3 {
		_, err = js.Publish(t.Context(), "evt.chat.c1.created", nil)
		is.Equal(err != nil, i == 2)
	}
	is.Equal(apiErrorCode(t, err), 10077) // maximum messages exceeded
	info, err := s.Info(t.Context())
	is.NoErr(err)
	is.Equal(info.State.FirstSeq, uint64(1))
	is.Equal(info.State.Msgs, uint64(2))
}

// A server that always syncs can have both streams, each with its own durability.
func TestServerSyncsEventsAndNotDeltas(t *testing.T) {
	is := is.New(t)
	dir := t.TempDir()
	server := eventstest.Server(t, dir)
	is.True(server.JetStreamConfig().SyncAlways)
	nc := eventstest.Conn(t, server)
	eventstest.Open(t, nc)
	js, err := jetstream.New(nc)
	is.NoErr(err)
	for stream, mode := range map[string]jetstream.PersistModeType{"EVENTS": jetstream.DefaultPersistMode,
		"DELTAS": jetstream.AsyncPersistMode} {
		s, err := js.Stream(t.Context(), stream)
		is.NoErr(err)
		is.Equal(s.CachedInfo().Config.PersistMode, mode)
	}
	both := log.EventsConfig(log.DefaultOptions)
	both.Name, both.Subjects, both.PersistMode = "BOTH", []string{"both.>"}, jetstream.AsyncPersistMode
	_, err = js.CreateStream(t.Context(), both)
	is.True(apiErrorCode(t, err) != 0) // async persistence and atomic batches exclude each other

	_, err = js.Publish(t.Context(), "evt.chat.c1.created", []byte("a fact that is on disk when it is acknowledged"))
	is.NoErr(err)
	blocks, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "EVENTS", "msgs", "*.blk"))
	is.NoErr(err)
	is.Equal(len(blocks), 1)
	info, err := os.Stat(blocks[0])
	is.NoErr(err)
	is.True(info.Size() > 0)
}

// An ordered consumer outlives Stop, and a stream takes a limited number: readers must remove theirs.
func TestReadersRemoveTheirConsumers(t *testing.T) {
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	_, err := l.Append(t.Context(), openCode(t, "chat1", "evt_1", 0, 10))
	is.NoErr(err)
	for range 20 {
		is.Equal(len(read(t, l, 0)), 1)
	}
	js, err := jetstream.New(nc)
	is.NoErr(err)
	s, err := js.Stream(t.Context(), "EVENTS")
	is.NoErr(err)
	is.Equal(s.CachedInfo().State.Consumers, 0)
}
