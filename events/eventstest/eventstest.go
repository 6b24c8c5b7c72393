// Package eventstest gives tests a real log in milliseconds: an in-process nats-server with JetStream on a temporary
// directory, set up like the real one (sync on every append) and gone with the test.
package eventstest

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
)

// Server starts a server without a network listener on the given directory, so that a test can stop it and start
// another one there. It is stopped with the test.
func Server(t testing.TB, dir string) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: dir, SyncAlways: true, NoSigs: true, NoLog: true,
		DisableShortFirstPing: true, // as in natsconf: nats.go rejects a PING that comes before its PONG
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("nats-server is not ready after a minute")
	}
	return s
}

// Conn connects to the server in process.
func Conn(t testing.TB, s *server.Server) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.Timeout(time.Minute)) // on a busy machine, too
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Log opens a fresh log that knows the given secrets.
func Log(t testing.TB, secrets ...string) *log.Log {
	t.Helper()
	return Open(t, Conn(t, Server(t, expect.MemoryDir(t))), secrets...)
}

// Open opens the log over a connection.
func Open(t testing.TB, nc *nats.Conn, secrets ...string) *log.Log {
	t.Helper()
	l, err := log.Open(t.Context(), nc, log.DefaultOptions, secret.NewRedactor(secrets...))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// DeleteConsumer deletes the durable consumer of a reader that has stopped. The reader may have stopped before it had
// one.
func DeleteConsumer(t testing.TB, nc *nats.Conn, name string) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	err = js.DeleteConsumer(t.Context(), log.EventsStream, name)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Fatal(err)
	}
}
