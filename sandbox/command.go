package sandbox

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/inside"
	"pocketcoder/sandbox/limit"
	"pocketcoder/sandbox/wire"
)

// bufferSize is the size of the buffer for one stream of a command: as much as a pipe holds by default (pipe(7)). A
// full buffer is one message of the protocol.
const bufferSize = wire.ChunkSize

// Once a stream has more than bufferSize bytes, copy waits gatherTime for the rest of a buffer, and the pipe holds
// pipeSize bytes. Otherwise most reads return a few KiB, because a pipe is read faster than it is filled. Measured
// with 1 GB through NATS: half the messages and half the processor time.
const (
	gatherTime = 200 * time.Microsecond
	pipeSize   = 256 << 10
)

// buffers are reused: with 64 short commands at once, clearing new ones costs a third of the throughput (measured).
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// killPoll is how often the survivors of a cancelled command are counted, because nothing reports the end of a process
// that is not a child.
const killPoll = 10 * time.Millisecond

// settleTime is the time for a process to end behind its shell, or to execute its program after fork(2).
const settleTime = 20 * time.Millisecond

// command is a running command. Its shell is not reaped before reap, so pid keeps naming the shell and its group.
type command struct {
	*tree
	process        *os.Process
	stdout, stderr *os.File
	stdin          *os.File // nil unless the request has Stdin
	exited         chan struct{}
	left           *wire.Left    // processes that run although the shell has exited by itself
	grace          time.Duration // between the request to end and the kill
	inputOverflow  atomic.Bool   // more input was typed than is buffered
	link           *inside.Link  // the connection to its network namespace, if it has one
}

func (w *Worker) copy(ctx context.Context, to io.Writer, from *outputReader, exec string) {
	defer from.Close()
	buffer := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	printed, isLarge := 0, false
	for {
		n, err := from.Read(buffer[:])
		if isLarge && err == nil && n < bufferSize {
			time.Sleep(gatherTime)
			n += readNow(from.File, buffer[n:])
		}
		if printed += n; !isLarge && printed > bufferSize {
			isLarge = true
			enlargePipe(from.File)
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				if ctx.Err() == nil {
					w.config.Log.Warn("output not delivered", "exec", exec, "err", err)
				}
				return
			}
		}
		if err != nil { // end of file, or the deadline set by end
			return
		}
	}
}

// wait returns why the command has ended or must be ended.
func (c *command) wait(ctx context.Context, most time.Duration, finished <-chan struct{}) wire.Reason {
	var expired <-chan time.Time
	if most > 0 {
		t := time.NewTimer(most)
		defer t.Stop()
		expired = t.C
	}
	reason := wire.Exited
	select {
	case <-finished:
	case <-ctx.Done():
		reason = wire.Cancelled
	case <-expired:
		reason = wire.TimedOut
	case reason = <-c.exceeded:
		return reason
	}
	if !isClosed(finished) {
		return reason
	}
	select {
	case reason = <-c.exceeded: // it was killed
		return reason
	default:
		return wire.Exited
	}
}

// end kills the process tree of the command and waits until its output is sent. A cancelled command first gets time to
// clean up. A command that exceeds a limit does not, because it could use more meanwhile.
func (c *command) end(reason wire.Reason, finished <-chan struct{}) {
	if !isKill(reason) {
		c.terminate(finished)
	}
	syscall.Kill(-c.shell, syscall.SIGKILL) // of bubblewrap: the kernel then kills all processes in its namespaces
	c.kill()
	// All processes that could write are dead, so the rest of the pipes is read at once. A process that escaped the kill
	// could keep the pipes open, but must not delay the result.
	soon := time.Now().Add(wire.KillGrace / 2)
	c.stdout.SetReadDeadline(soon)
	c.stderr.SetReadDeadline(soon)
	<-finished
}

// isKill reports whether a command with this reason gets no SIGTERM and no grace time.
func isKill(r wire.Reason) bool { return limit.IsLimit(r) || r == wire.ProtectedName }

// terminate sends SIGTERM to the command, and returns when the command has ended or the grace time is over.
func (c *command) terminate(finished <-chan struct{}) {
	c.signal(syscall.SIGTERM)
	grace := time.NewTimer(c.grace)
	defer grace.Stop()
	for {
		select {
		case <-grace.C:
			return
		case <-c.exceeded:
			return
		case <-time.After(killPoll):
			if isClosed(finished) && len(c.alive()) == 0 {
				return
			}
		}
	}
}

// needsWake reports whether a signal ends a process. A stopped process receives it only after SIGCONT.
func needsWake(s syscall.Signal) bool { return s == syscall.SIGTERM || s == syscall.SIGHUP }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// reap takes the shell's status from wait(2). ExitCode is 128+n for signal n, as in shells.
//
// If a signal ends the command, bubblewrap exits with 128+n. A command may exit with such a code by itself, so the code
// counts as a signal only if the worker ended the command.
func (c *command) reap(reason wire.Reason) wire.Result {
	if reason == wire.Exited && !c.hasMonitor && !c.isAtTerminal() {
		c.left = c.listLeft()
	}
	state, err := c.process.Wait()
	if err != nil {
		return wire.Result{ExitCode: wire.ExitLost, Reason: wire.Lost, Error: fmt.Sprintf("wait for shell: %v", err)}
	}
	status := state.Sys().(syscall.WaitStatus)
	r := wire.Result{ExitCode: status.ExitStatus(), Reason: reason}
	if status.Signaled() {
		r.ExitCode, r.Signal = 128+int(status.Signal()), unix.SignalName(status.Signal())
	}
	if r.Reason == wire.Exited && r.ExitCode != 0 {
		r.Reason = c.exceededLimit(r.ExitCode, state.UserTime()+state.SystemTime())
	}
	if r.Reason == wire.Exited {
		r.Left = c.left
	}
	if isKill(r.Reason) && r.ExitCode == 0 { // the shell had exited before its processes were killed
		r.ExitCode, r.Signal = 128+int(syscall.SIGKILL), unix.SignalName(syscall.SIGKILL)
	}
	if c.hasMonitor && r.Reason != wire.Exited && r.Signal == "" && r.ExitCode > 128 {
		r.Signal = unix.SignalName(syscall.Signal(r.ExitCode - 128))
	}
	return r
}
