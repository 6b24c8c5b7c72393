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

// detachDelay is how long the shell waits for what goes wrong at once, such as a program that is not there, unless Exec
// says another.
const detachDelay = 200 * time.Millisecond

// detach lets a command run on by itself, and answers the shell a moment after a worker has taken it. From then on the
// end of the shell, of the turn or of OpenCode does not end it: a signal does, the end of its chat, its worker's, and
// ours. A shell that is gone before takes it along.
func (x *Executions) detach(ctx context.Context, u *run, stdout, stderr io.Writer) wire.Result {
	started, ended := make(chan wire.Start, 1), make(chan wire.Result, 1)
	u.onStart = func(s wire.Start) { started <- s }
	alone, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	shell := shellOutput{left: make(chan struct{})}
	defer shell.leave()
	x.running.background.Go(func() {
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
	case result := <-ended: // it was quick
		return result
	case <-ctx.Done():
	case <-time.After(cmp.Or(x.detachDelay, detachDelay)):
		shell.leave()
		// Who does not read it needs not: everything is in the log.
		_, _ = fmt.Fprintf(stdout, "[PocketCoder] It runs in the background as execution %s (%s, isolation %s). Its output is recorded; a person sees it with: "+
			"pocketcoder sandbox logs %[1]s -f, and ends it with: pocketcoder sandbox kill %[1]s\n", u.requested.Exec,
			by.Worker, by.Isolation)
	}
	return wire.Result{}
}

// shellOutput hears what is written until it leaves.
type shellOutput struct {
	leaveOnce sync.Once
	left      chan struct{}
}

func (l *shellOutput) leave() { l.leaveOnce.Do(func() { close(l.left) }) }

// writerTo passes on to w what is written while somebody listens. A write that w does not take is waited for until
// then: who does not read holds up neither the command nor the leaving. w must give up when the request it belongs to
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
			_, _ = w.Write(own) // it is recorded whether that is heard or not
		}()
		select {
		case <-written:
		case <-l.left:
		}
		return len(p), nil
	})
}

// endWithDeletedChats ends what runs in chats that are deleted after an event, until ctx ends.
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
