package stream

import (
	"context"
	"io"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/log/tail"
	"pocketcoder/web/api"
)

// liveOutput writes one output stream of a running command, every byte once. It reads stored deltas while the command
// runs, and the stored output for bytes that are missing in the deltas. A slow client costs no memory.
type liveOutput struct {
	log          *log.Log
	chat, exec   string
	stream       string
	out          *api.DeadlineWriter
	written      int64  // bytes
	nextFragment uint64 // sequence after which to read fragments
}

// A fragment is stored shortly after it is published, so a reader waits storeDelay. Without a published fragment it
// reads after pollInterval.
const (
	storeDelay   = 10 * time.Millisecond
	pollInterval = time.Second
)

// serve returns when the command has ended. The end comes after the sequence since.
func (l *liveOutput) serve(ctx context.Context, tail *tail.Tail, since uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	woken, ended, failed := make(chan struct{}, 1), make(chan events.ExecFinished, 1), make(chan error, 2)
	go func() {
		failed <- l.log.FollowDeltas(ctx, []string{events.ExecDeltaSubject(l.chat, l.exec)}, func(log.Delta) {
			select {
			case woken <- struct{}{}:
			default:
			}
		})
	}()
	go func() {
		if err := l.followEnd(ctx, tail, since, ended); err != nil {
			failed <- err
		}
	}()
	for wait := pollInterval; ; {
		if err := l.writeFragments(ctx); err != nil {
			return err
		}
		select {
		case <-woken:
			wait = storeDelay
		case <-time.After(wait):
			wait = pollInterval
		case d := <-ended:
			return l.writeRest(ctx, d)
		case err := <-failed:
			return err
		}
	}
}

func (l *liveOutput) followEnd(ctx context.Context, tail *tail.Tail, since uint64,
	ended chan<- events.ExecFinished) error {
	return tail.Follow(ctx, since, events.ChatSubject(l.chat, events.ExecFinished{}.Kind()), func(e events.Event) error {
		body, _ := events.Decode(e) // any other event does not end this execution
		if d, ok := body.(events.ExecFinished); ok && d.Exec == l.exec {
			ended <- d
			return events.ErrStop
		}
		return nil
	}, func(uint64) error { return nil })
}

// writeFragments writes the deltas that continue the output. It skips a delta after a gap: the missing bytes are only
// in the stored output.
func (l *liveOutput) writeFragments(ctx context.Context) (err error) {
	l.nextFragment, err = l.log.FoldDeltas(ctx, events.ExecDeltaSubject(l.chat, l.exec), l.nextFragment,
		func(d log.Delta) error {
			have := l.written - d.Offset // bytes of it
			if d.Stream != l.stream || have < 0 || have >= int64(len(d.Data)) {
				return nil
			}
			n, err := l.out.Write(d.Data[have:])
			l.written += int64(n)
			return err
		})
	if err != nil {
		return err
	}
	return l.out.Flush()
}

func (l *liveOutput) writeRest(ctx context.Context, d events.ExecFinished) error {
	o := d.Stdout
	if l.stream == stderr {
		o = d.Stderr
	}
	content, err := OpenOutput(ctx, l.log, o)
	if err != nil {
		return err
	}
	defer content.Close()
	if size, err := content.Seek(0, io.SeekEnd); err != nil || size <= l.written { // less may be stored of a lost command
		return err
	}
	if _, err := content.Seek(l.written, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(l.out, content)
	return err
}
