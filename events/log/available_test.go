package log_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
)

func TestOnlyCommandsAreRefusedOnAFullDisk(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var refusal error
	options := log.DefaultOptions
	options.Refuse = func() error { return refusal }
	l, err := log.Open(t.Context(), eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t))), options,
		secret.NewRedactor())
	is.NoErr(err)
	commit := func(id string) []log.Write { return []log.Write{{Event: eventOfSize(t, id, 10)}} }
	_, err = l.Commit(t.Context(), commit("evt_1"))
	is.NoErr(err)

	refusal = log.Unavailable("The disk is full.")
	_, err = l.Commit(t.Context(), commit("evt_2"))
	var u log.Unavailable
	is.True(errors.As(err, &u))
	is.Equal(u.Error(), "The disk is full.")
	_, err = l.Append(t.Context(), eventOfSize(t, "evt_3", 10))
	is.NoErr(err)
	_, err = l.Commit(log.UseLastSpace(t.Context()), commit("evt_4"))
	is.NoErr(err)

	refusal = nil
	_, err = l.Commit(t.Context(), commit("evt_5"))
	is.NoErr(err)
	is.Equal(len(read(t, l, 0)), 4)
}

func TestStorageLimitOfTheServerIsReported(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	limit := &server.Options{DontListen: true, JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, NoSigs: true,
		NoLog: true, JetStreamMaxStore: 4 << 20}
	s, err := server.NewServer(limit.Clone())
	is.NoErr(err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	is.True(s.ReadyForConnections(time.Minute))
	options := log.DefaultOptions
	options.DeltaMaxBytes = 1 << 20
	l, err := log.Open(t.Context(), eventstest.Conn(t, s), options, secret.NewRedactor())
	is.NoErr(err)
	n := 0
	event := func(size int) events.Event {
		n++
		return eventOfSize(t, fmt.Sprint("evt_", n), size)
	}
	for range 100 {
		if _, err = l.Append(t.Context(), event(200_000)); err != nil {
			break
		}
	}
	_, batch := l.AppendAll(t.Context(), []events.Event{event(10), event(10)})
	_, large := l.Append(t.Context(), event(log.MaxInline+1))
	for _, err := range []error{err, batch, large} {
		var u log.Unavailable
		is.True(errors.As(err, &u))
		is.Equal(u.Error(), "The NATS server has reached its storage limit. An administrator must raise max_file_store of the server, or free space and restart it.")
		is.True(log.IsUnavailable(err))
	}
	_, err = l.Failing() // health reports it
	is.True(log.IsUnavailable(err))

	limit.JetStreamMaxStore = 64 << 20
	is.NoErr(s.ReloadOptions(limit))
	_, err = l.Probe(t.Context())
	is.NoErr(err)
	_, err = l.Failing()
	is.True(log.IsUnavailable(err)) // an answer of the server does not end the failure
	other, err := log.Open(t.Context(), eventstest.Conn(t, s), options, secret.NewRedactor())
	is.NoErr(err)
	_, err = other.Append(t.Context(), event(10))
	is.NoErr(err)
	_, err = l.Probe(t.Context())
	is.NoErr(err)
	_, err = l.Failing()
	is.NoErr(err) // the event of another process was stored
	_, err = l.AppendAll(t.Context(), []events.Event{event(10), event(10), event(log.MaxInline + 1)})
	is.NoErr(err)
}
