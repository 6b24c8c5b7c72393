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
)

const (
	diskPause     = time.Second      // between two checks of the disk
	reopenPause   = 10 * time.Second // between two tries to reopen the log
	lowDisk       = 256 << 20        // bytes
	diskIsFull    = log.Unavailable("The disk of the data directory is full; free some space.")
	logReopens    = log.Unavailable("The disk of the data directory was full, and the log is not open again yet; try again in a few seconds.")
	writeFailed   = log.Unavailable("A write of the log has failed, and the log is not open again yet; try again in a few seconds.")
	logHasStopped = log.Unavailable("The log does not store events any more; an administrator finds the reason in /api/health.")
)

// logDisk watches the disk of the embedded server. While the server cannot store, commands are refused with the reason.
// Once it can, it stores again without a restart: logDisk reopens the log after a failed write, and to repair damaged
// files. With --nats it does nothing.
type logDisk struct {
	Data     datadir.Dir
	Server   *natsconf.Server // nil with --nats
	Damaged  func() bool      // reports whether files are damaged
	Reopened func()           // called after the server has reopened the log
	Logger   *slog.Logger

	failed atomic.Pointer[error] // why the server does not store events; nil if it does
	next   time.Time             // when the log may be reopened
}

// Run watches the disk until ctx ends.
func (d *logDisk) Run(ctx context.Context) error {
	if d.Server == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	tick := time.NewTicker(diskPause)
	defer tick.Stop()
	last := d.Trouble()
	for {
		now := d.Check(ctx)
		if now != "" && last == "" {
			d.Logger.Error("commands are refused: " + now)
		}
		if now == "" && last != "" {
			d.Logger.Warn("commands are accepted again: there is space on the disk of " + string(d.Data))
		}
		last = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Check checks whether the server stores events. It reopens the log after a failed write once there is space, and to
// repair damaged files. It returns Trouble.
func (d *logDisk) Check(ctx context.Context) string {
	err := d.Server.WriteError()
	failed := natsconf.IsWriteFailed(err) || !d.Server.JetStreamEnabled() || d.Damaged()
	if free, _ := d.free(); failed && free >= natsconf.MinFree && time.Now().After(d.next) {
		d.next = time.Now().Add(reopenPause)
		if failed := d.Server.Reopen(ctx); failed == nil {
			err = d.Server.WriteError()
			d.Reopened()
		} else if ctx.Err() == nil {
			d.Logger.Error(failed.Error())
		}
	}
	if err == nil {
		d.failed.Store(nil)
	} else {
		d.failed.Store(&err)
	}
	return d.Trouble()
}

func (d *logDisk) free() (uint64, error) { return natsconf.Free(string(d.Data)) }

// HasRoom reports whether large outputs may be stored.
func (d *logDisk) HasRoom() bool { return d.Server == nil || natsconf.HasRoom(string(d.Data)) }

// Refusal returns why commands are refused, nil if they are accepted.
func (d *logDisk) Refusal() error {
	if d.Server == nil {
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

// Trouble returns why commands are refused, with details, "" if they are accepted.
func (d *logDisk) Trouble() string {
	if d.Server == nil {
		return ""
	}
	if free, err := d.free(); err == nil && free < natsconf.MinFree {
		return fmt.Sprintf("the disk of %s is full: %d MiB are free, and %d are needed", d.Data, free>>20,
			natsconf.MinFree>>20)
	}
	if failed := d.failed.Load(); failed != nil {
		return "the log stores nothing: " + (*failed).Error()
	}
	return ""
}

// AlmostFull returns a warning if little space is left, else "".
func (d *logDisk) AlmostFull() string {
	if free, err := d.free(); err == nil && free < lowDisk && d.Server != nil {
		return fmt.Sprintf("the disk of %s is almost full: %d MiB are free", d.Data, free>>20)
	}
	return ""
}
