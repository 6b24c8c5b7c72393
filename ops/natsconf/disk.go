package natsconf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"
)

// MinFree is how many bytes must be free for the server to start, and for Reopen.
const MinFree = 64 << 20

// storeLimit is how many bytes JetStream of the embedded server may store: more than a disk has, so that the disk is
// the limit. The server's own limit is three quarters of what was free when it started, and does not grow while it
// runs. The server compares the reserved sizes of streams with storeLimit, not with the disk, so it also starts on a
// smaller disk.
const storeLimit = 1 << 50

// Free returns how many bytes are free on the disk of a directory.
func Free(dir string) (uint64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("look at the disk of %s: %w", dir, err)
	}
	return fs.Bavail * uint64(fs.Bsize), nil
}

// outputReserve is how many bytes of a large disk outputs of commands leave free: for what people and models say, and
// for a person to make room.
const outputReserve = 1 << 30

// HasRoom reports whether large contents may be stored on the disk of a directory: if a tenth of it is free, or 1 GiB.
func HasRoom(dir string) bool {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return true // the write that follows reports the error
	}
	free, all := fs.Bavail*uint64(fs.Bsize), fs.Blocks*uint64(fs.Bsize)
	return free >= min(outputReserve, max(all/10, 2*MinFree))
}

// WriteError returns why JetStream does not store, nil if it does. After a failed write a stream stores nothing more,
// until Reopen or a restart (measured, nats-server 2.15.2).
func (s *Server) WriteError() error {
	var all []error
	for _, e := range s.health() {
		if e.Type == server.HealthzErrorAccount || strings.HasPrefix(e.Stream, ".") {
			continue // a file of another program, which the server takes for one of its own
		}
		all = append(all, errors.New(e.Error))
	}
	return errors.Join(all...)
}

// health returns what is wrong with JetStream. The server looks for 1 ms whether it takes connections, and at nothing
// else if that fails, which it also does when the machine is busy (seen). So it is asked several times, and whether it
// takes connections does not count here.
func (s *Server) health() []server.HealthzError {
	for range 20 {
		found := s.Healthz(&server.HealthzOptions{Details: true}).Errors
		if len(found) == 0 || found[0].Type != server.HealthzErrorConn {
			return found
		}
	}
	return nil
}

// IsWriteFailed reports whether an error of WriteError comes from a write that failed, so that Reopen may clear it.
func IsWriteFailed(err error) bool {
	return err != nil && strings.Contains(err.Error(), " write error: ")
}

// IsDiskFull reports whether an error of WriteError comes from a full disk or an exhausted quota.
func IsDiskFull(err error) bool {
	return err != nil && (strings.Contains(err.Error(), syscall.ENOSPC.Error()) ||
		strings.Contains(err.Error(), syscall.EDQUOT.Error()))
}

// reopenProbe is how many bytes Reopen writes to find out whether the disk takes writes, which a quota can prevent.
const reopenProbe = 1 << 20

// Reopen closes the streams, checks their files, and opens them again, which clears WriteError. Connections and
// subscriptions stay. Durable consumers go on; the client library creates ordered consumers again. It changes nothing
// if fewer than MinFree bytes are free. It returns soon after ctx ends. The streams are then closed, and the server is
// only good for Close.
func (s *Server) Reopen(ctx context.Context) error {
	fail := func(err error) error { return fmt.Errorf("open JetStream again in %s: %w", s.store.StoreDir, err) }
	if err := checkFree(s.store.StoreDir); err != nil {
		return fail(err)
	}
	if err := probe(s.store.StoreDir); err != nil {
		return fail(err)
	}
	if err := s.ShutdownJetStream(); err != nil {
		return fail(err)
	}
	if err := s.check(ctx); err != nil {
		return fail(err)
	}
	config := s.store // EnableJetStream changes it
	opened := make(chan error, 1)
	go func() { opened <- s.EnableJetStream(&config) }()
	select {
	case err := <-opened:
		if err != nil {
			return fail(errors.Join(err, s.ShutdownJetStream())) // half of it runs
		}
		return nil
	case <-ctx.Done():
		return fail(ctx.Err())
	}
}

// probe writes a file, syncs it and removes it.
func probe(dir string) error {
	f, err := os.CreateTemp(dir, "probe-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, reopenProbe))
	return errors.Join(err, f.Sync(), f.Close())
}

func checkFree(dir string) error {
	free, err := Free(dir)
	if err == nil && free < MinFree {
		err = fmt.Errorf("no disk space: %d MiB are free, at least %d are needed", free>>20, MinFree>>20)
	}
	return err
}

// storeConfig returns what the server makes of its options when it starts JetStream.
func storeConfig(o *server.Options) server.JetStreamConfig {
	return server.JetStreamConfig{
		StoreDir: o.StoreDir, SyncInterval: o.SyncInterval, SyncAlways: o.SyncAlways, Strict: !o.NoJetStreamStrict,
		MaxMemory: o.JetStreamMaxMemory, MaxStore: o.JetStreamMaxStore, Domain: o.JetStreamDomain, CompressOK: true,
		UniqueTag: o.JetStreamUniqueTag,
	}
}
