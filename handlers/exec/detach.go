package exec

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/sandbox/wire"
)

// detachDelay is how long the shell waits for an early failure of a detached command, such as a missing program.
const detachDelay = 200 * time.Millisecond

// detach starts a detached command, and returns a moment after a worker has started it. From then on neither the end of
// the shell nor of the turn or of OpenCode ends the command. It ends by itself, by a signal, with its chat, with its
// worker, or with this process. If the shell ends before the start, the command is cancelled.
func (x *Executions) detach(ctx context.Context, u *run, stdout, stderr io.Writer) wire.Result {
	started, ended := make(chan wire.Start, 1), make(chan wire.Result, 1)
	u.onStart = func(s wire.Start) { started <- s }
	alone, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	shell := shellOutput{left: make(chan struct{})}
	defer shell.leave()
	x.running.group.Go(func() {
		defer giveUp()
		ended <- x.runRecorded(alone, u, shell.writerTo(stdout), shell.writerTo(stderr))
	})
	var by wire.Start
	select {
	case by = <-started:
	case result := <-ended:
		return result
	case <-ctx.Done():
		giveUp()
		return <-ended
	}
	select {
	case result := <-ended: // the command has ended already
		return result
	case <-ctx.Done():
	case <-time.After(cmp.Or(x.detachDelay, detachDelay)):
		shell.leave()
		_, _ = fmt.Fprintf(stdout, "[PocketCoder] It runs in the background as execution %s (%s, isolation %s). Its output is recorded; a person sees it with: "+
			"pocketcoder sandbox logs %[1]s -f, and ends it with: pocketcoder sandbox kill %[1]s\n", u.requested.Exec,
			by.Worker, by.Isolation)
		if by.Apart {
			_, _ = io.WriteString(stdout, apartNotice)
		}
	}
	return wire.Result{}
}

// apartNotice is for the model. The reason of the isolation level says why (pocketcoder doctor).
const apartNotice = "[PocketCoder] This machine gives each command its own network: your other commands cannot reach what it serves.\n"

// shellOutput forwards output to a shell until the shell leaves.
type shellOutput struct {
	leaveOnce sync.Once
	left      chan struct{}
}

func (l *shellOutput) leave() { l.leaveOnce.Do(func() { close(l.left) }) }

// writerTo returns a writer that forwards to w until the shell leaves. A Write blocks until w accepts the data or the
// shell leaves, so a shell that does not read delays neither the command nor its own end. w must fail when its request
// is over.
func (l *shellOutput) writerTo(w io.Writer) io.Writer {
	return writer(func(p []byte) (int, error) {
		select {
		case <-l.left:
			return len(p), nil
		default:
		}
		written, own := make(chan struct{}), bytes.Clone(p)
		go func() {
			defer close(written)
			_, _ = w.Write(own) // the recorder has the output already
		}()
		select {
		case <-written:
		case <-l.left:
		}
		return len(p), nil
	})
}

// endWithDeletedChats ends the executions of chats that are deleted after a sequence, until ctx ends.
func (x *Executions) endWithDeletedChats(ctx context.Context, after uint64) error {
	err := x.Log.Read(ctx, after, []string{events.ChatSubject("*", events.Deleted{}.Kind())}, func(b log.Batch) error {
		for _, e := range b.Events {
			x.running.endChat(e.Subject.ID)
		}
		return nil
	})
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("end executions of deleted chats: %w", err)
}
