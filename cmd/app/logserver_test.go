package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

func serverOptions(d datadir.Dir, keys natsconf.Keys) logServerOptions {
	config := natsconf.Config{Name: "test", Listen: "127.0.0.1:0", StoreDir: d.Path("nats"), Keys: keys.Public,
		Pools: []string{"p1"}}
	return logServerOptions{Data: d, Config: config, Logger: slog.New(slog.DiscardHandler)}
}

// Whoever waits for the system to come back waits at its address.
func TestTheLogIsServedWhereItWasIfThatIsFree(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d, other := datadir.Dir(t.TempDir()), datadir.Dir(t.TempDir())
	serve := func(d datadir.Dir) (address string, stop func()) {
		keys, err := natsconf.LoadKeys(d.Path("keys"))
		is.NoErr(err)
		s, err := openLogServer(t.Context(), serverOptions(d, keys), keys)
		is.NoErr(err)
		t.Cleanup(s.Close)
		return s.Embedded.Addr().String(), s.Close
	}
	first, stop := serve(d)
	stop()
	again, _ := serve(d)
	is.Equal(again, first)
	for _, last := range []string{first, "0.0.0.0:0", "", "nowhere"} { // taken, or none of ours
		is.NoErr(os.WriteFile(other.Path("nats-address"), []byte(last), 0o600))
		address, stop := serve(other)
		is.True(address != first)
		is.Equal(address[:len("127.0.0.1:")], "127.0.0.1:")
		stop()
	}
}

// installation is a log server with the log and its read models.
type installation struct {
	*logServer
	log   *log.Log
	model *projections.Model
}

func openInstallation(t *testing.T, d datadir.Dir) (s installation) {
	t.Helper()
	is := is.New(t)
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	is.NoErr(err)
	s.logServer, err = openLogServer(t.Context(), serverOptions(d, keys), keys)
	is.NoErr(err)
	t.Cleanup(s.logServer.Close)
	s.log, err = log.Open(t.Context(), s.Conn, log.DefaultOptions, secret.NewRedactor())
	is.NoErr(err)
	is.NoErr(s.Compare(t.Context()))
	is.NoErr(os.MkdirAll(d.ReadModels(), 0o700))
	s.model, err = projections.Open(t.Context(), d.ReadModels(), s.log)
	is.NoErr(err)
	return s
}

// close waits until the read models include the event at seq, and stops the system.
func (s installation) close(t *testing.T, seq uint64) {
	t.Helper()
	is := is.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.model.Run(ctx) })
	is.NoErr(s.model.Wait(t.Context(), seq))
	cancel()
	running.Wait()
	is.NoErr(s.model.Close())
	s.Close()
}

func (s installation) append(t *testing.T, bodies ...string) (seq uint64) {
	t.Helper()
	for _, body := range bodies {
		text, err := json.Marshal(body)
		is.New(t).NoErr(err)
		e, err := events.NewOpenCode("chat1", "local", "evt_"+rand.Text(), 1,
			events.OpenCode{Type: "session.updated", Properties: text})
		is.New(t).NoErr(err)
		seq, err = s.log.Append(t.Context(), e)
		is.New(t).NoErr(err)
	}
	return seq
}

// flip changes 16 bytes of the first block of a stream, as far from its end.
func flip(t *testing.T, d datadir.Dir, stream string, fromEnd int) {
	t.Helper()
	path := d.Path("nats", "jetstream", "APP", "streams", stream, "msgs", "1.blk")
	text, err := os.ReadFile(path)
	is.New(t).NoErr(err)
	for i := range 16 {
		text[len(text)-fromEnd+i] ^= 0x5a
	}
	is.New(t).NoErr(os.WriteFile(path, text, 0o600))
}

func TestReadModelsDoNotKeepWhatTheLogHasLost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := datadir.Dir(expect.MemoryDir(t))
	s := openInstallation(t, d)
	s.append(t, "one", "two", "three")
	s.close(t, 3)
	flip(t, d, "EVENTS", 60)
	is.Equal(store.Applied(t.Context(), d.ReadModels()), uint64(3))

	s = openInstallation(t, d)
	expect.Contains(t, s.Trouble(), "event #3 is lost")
	is.Equal(s.model.Seq(), uint64(0)) // it begins anew
	is.Equal(s.append(t, "four"), uint64(4))
	old := s.Losses()[0].Directory
	is.Equal(store.Applied(t.Context(), old), uint64(3)) // the report on what is lost
	s.close(t, 4)

	s = openInstallation(t, d)
	is.Equal(s.model.Seq(), uint64(4)) // and goes on
	is.Equal(len(s.Losses()), 1)

	flip(t, d, "EVENTS", 60) // its first file, while it runs
	is.NoErr(s.Embedded.Reopen(t.Context()))
	is.Equal(len(s.Losses()), 2)
	expect.Contains(t, s.Losses()[1].String(), "event #2 is lost")
	s.log.Reopened()
	is.Equal(s.append(t, "five"), uint64(5))
}

func TestDamageOfALargeBodyLosesNoOther(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := datadir.Dir(expect.MemoryDir(t))
	s := openInstallation(t, d)
	for _, letter := range []string{"a", "b", "c"} {
		s.append(t, strings.Repeat(letter, 300<<10))
	}
	s.close(t, 3)
	flip(t, d, "OBJ_BLOBS", 10000)
	s = openInstallation(t, d)
	expect.Contains(t, s.Trouble(), "messages of the stream OBJ_BLOBS may be lost; the file 1.blk is damaged")
	bad := 0
	is.NoErr(s.log.Read(t.Context(), 0, nil, func(b log.Batch) error {
		for _, e := range b.Events {
			if e.Malformed != nil {
				bad++
			}
		}
		if b.Behind == 0 {
			return events.ErrStop
		}
		return nil
	}))
	is.Equal(bad, 1)
}

func TestDamagedFragmentsDoNotStopAStart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := datadir.Dir(expect.MemoryDir(t))
	s := openInstallation(t, d)
	js, err := jetstream.New(s.Conn)
	is.NoErr(err)
	for range 10 {
		_, err := js.Publish(t.Context(), "delta.chat.c1.x", make([]byte, 1000))
		is.NoErr(err)
	}
	s.append(t, "one")
	s.close(t, 1)
	flip(t, d, "DELTAS", 5000)
	s = openInstallation(t, d)
	is.Equal(s.Trouble(), "")
	last, err := s.log.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, uint64(1))
	js, err = jetstream.New(s.Conn)
	is.NoErr(err)
	deltas, err := js.Stream(t.Context(), "DELTAS")
	is.NoErr(err)
	is.Equal(deltas.CachedInfo().State.Msgs, uint64(9))
	is.Equal(deltas.CachedInfo().State.LastSeq, uint64(10))
}
