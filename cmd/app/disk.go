package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"pocketcoder/cmd/datadir"
	"pocketcoder/events/log"
	"pocketcoder/ops/natsconf"
	"pocketcoder/web/api"
)

const (
	diskPause     = time.Second      // between two looks at the disk
	reopenPause   = 10 * time.Second // between two tries to open the log again
	lowDisk       = 256 << 20        // bytes; health is degraded below
	diskIsFull    = log.Unavailable("The disk of the data directory is full; free some space.")
	logReopens    = log.Unavailable("The disk of the data directory was full, and the log is not open again yet; try again in a few seconds.")
	writeFailed   = log.Unavailable("A write of the log has failed, and the log is not open again yet; try again in a few seconds.")
	logHasStopped = log.Unavailable("The log does not store events any more; an administrator finds the reason in /api/health.")
)

// logDisk watches the disk of the embedded server, and opens the log again after a failed write, and to repair damaged
// files. With --nats it does nothing: the log is elsewhere.
type logDisk struct {
	data   datadir.Dir
	server *natsconf.Server // nil with --nats
	rotten func() bool      // reports whether files are damaged
	opened func()           // is called when the server has opened the log again
	logger *slog.Logger
	failed atomic.Pointer[error] // why the server does not store; nil if it does
	next   time.Time             // when the log may be opened again
}

// Run watches the disk until ctx ends.
func (d *logDisk) Run(ctx context.Context) error {
	if d.server == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	tick := time.NewTicker(diskPause)
	defer tick.Stop()
	last := d.trouble()
	for {
		now := d.look(ctx)
		if now != "" && last == "" {
			d.logger.Error("commands are refused: " + now)
		}
		if now == "" && last != "" {
			d.logger.Warn("commands are accepted again: there is space on the disk of " + string(d.data))
		}
		last = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look notes whether the server stores. After a failed write it opens the log again once there is space, and so it
// does if files are damaged, which repairs them. It returns the trouble.
func (d *logDisk) look(ctx context.Context) string {
	err := d.server.WriteError()
	failed := natsconf.IsWriteFailed(err) || !d.server.JetStreamEnabled() || d.rotten()
	if free, _ := d.free(); failed && free >= natsconf.MinFree && time.Now().After(d.next) {
		d.next = time.Now().Add(reopenPause)
		if failed := d.server.Reopen(ctx); failed == nil {
			err = d.server.WriteError()
			d.opened()
		} else if ctx.Err() == nil {
			d.logger.Error(failed.Error())
		}
	}
	if err == nil {
		d.failed.Store(nil)
	} else {
		d.failed.Store(&err)
	}
	return d.trouble()
}

func (d *logDisk) free() (uint64, error) { return natsconf.Free(string(d.data)) }

// hasRoom reports whether large outputs may be stored.
func (d *logDisk) hasRoom() bool { return d.server == nil || natsconf.HasRoom(string(d.data)) }

// refusal returns why no command is stored now, nil if they are.
func (d *logDisk) refusal() error {
	if d.server == nil {
		return nil
	}
	if free, err := d.free(); err == nil && free < natsconf.MinFree {
		return diskIsFull
	}
	if failed := d.failed.Load(); failed == nil {
		return nil
	} else if natsconf.IsDiskFull(*failed) {
		return logReopens
	} else if natsconf.IsWriteFailed(*failed) {
		return writeFailed
	}
	return logHasStopped
}

// trouble returns why commands are refused, with all details; it is empty if they are accepted.
func (d *logDisk) trouble() string {
	if d.server == nil {
		return ""
	}
	if free, err := d.free(); err == nil && free < natsconf.MinFree {
		return fmt.Sprintf("the disk of %s is full: %d MiB are free, and %d are needed", d.data, free>>20,
			natsconf.MinFree>>20)
	}
	if failed := d.failed.Load(); failed != nil {
		return "the log stores nothing: " + (*failed).Error()
	}
	return ""
}

// NATSConfig is the configuration of the embedded server, and the beginning of that of an external one.
func NATSConfig(d datadir.Dir, keys natsconf.Keys) natsconf.Config {
	return natsconf.Config{
		Name: "pocketcoder", Listen: "127.0.0.1:0", StoreDir: d.Path("nats"), Keys: keys.Public,
		Pools: []string{Pool},
	}
}

// streamOptions leaves most of a small disk to the facts: the fragments get an eighth of what is free.
func streamOptions(o Options) log.Options {
	streams := log.DefaultOptions
	streams.Replicas = o.Replicas
	if free, err := natsconf.Free(string(o.Data)); err == nil && o.NATS == "" {
		streams.DeltaMaxBytes = min(streams.DeltaMaxBytes, int64(free)/8)
	}
	return streams
}

// logHealth is offline while nothing is stored, and degraded while the disk is almost full, and after a loss until a
// person has acknowledged it.
func (s *System) logHealth() api.Part {
	detail := map[string]any{"url": s.url}
	part := api.Part{State: either(s.nc.IsConnected(), api.Ready, api.Offline), Detail: detail}
	if trouble := s.disk.trouble(); trouble != "" {
		part.State, detail["error"] = api.Offline, trouble
		return part
	}
	if since, err := s.log.Failing(); err != nil {
		part.State, detail["error"] = api.Offline, fmt.Sprintf("the log has stored nothing for %d s: %v",
			int(time.Since(since).Seconds()), err)
		return part
	}
	if lost := s.nats.Trouble(); lost != "" && part.State == api.Ready {
		part.State, detail["error"] = api.Degraded, lost
		return part
	}
	if free, err := s.disk.free(); err == nil && free < lowDisk && s.disk.server != nil && part.State == api.Ready {
		part.State, detail["error"] = api.Degraded, fmt.Sprintf("the disk of %s is almost full: %d MiB are free",
			s.disk.data, free>>20)
	}
	return part
}
