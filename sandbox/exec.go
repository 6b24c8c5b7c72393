package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/limit"
	"pocketcoder/sandbox/netrelay"
	"pocketcoder/sandbox/quarantine"
	"pocketcoder/sandbox/wire"
)

// Exec runs one command and returns its result. It writes stdout and stderr from two goroutines, which have ended when
// it returns. A Write that blocks must return when ctx is done. If a Write fails, the command gets a broken pipe.
// wire.Serve sets the byte counts of the Result.
func (w *Worker) Exec(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
	began := time.Now()
	c, err := w.start(ctx, r)
	if err != nil {
		return wire.Result{
			ExitCode: wire.ExitRefused, Reason: wire.Refused, Error: err.Error(), DurationMS: time.Since(began).Milliseconds(),
		}
	}
	defer w.forget(r.Exec)

	finished := make(chan struct{})
	go func() {
		var streams sync.WaitGroup
		if c.isAtTerminal() {
			streams.Go(func() { w.copy(ctx, stdout, c.screen(), r.Exec) })
		} else {
			streams.Go(func() { w.copy(ctx, stdout, &outputReader{File: c.stdout}, r.Exec) })
			streams.Go(func() { w.copy(ctx, stderr, &outputReader{File: c.stderr}, r.Exec) })
		}
		streams.Wait()
		<-c.exited
		close(finished)
	}()
	if r.Input != nil || c.stdin != nil {
		go w.handleInput(c, r.Exec, r.Input, finished)
	}
	limit := w.config.Timeout
	if r.TimeoutMS > 0 {
		limit = time.Duration(r.TimeoutMS) * time.Millisecond
	}
	reason := c.wait(ctx, limit, finished)
	if reason != wire.Exited {
		c.hangUp()
		c.end(reason, finished)
	}
	result := c.reap(reason)
	w.reportQuarantined(r, c, &result, stdout, stderr)
	c.ended.Store(true)
	if c.inputOverflow.Load() && result.Reason == wire.Cancelled {
		result.Error = errUnread.Error()
	}
	result.DurationMS, result.Began = time.Since(began).Milliseconds(), began.UnixNano()
	return result
}

func (w *Worker) start(ctx context.Context, r wire.Request) (*command, error) {
	if err := w.check(r); err != nil {
		return nil, err
	}
	dir, real, err := openDir(r.Cwd)
	if err != nil {
		return nil, fmt.Errorf("open cwd: %w", err)
	}
	defer dir.Close()
	if !contains(w.workspace, real) {
		return nil, fmt.Errorf("cwd %s is outside the workspace %s; for a chat of another workspace start with that one (--workspace)", r.Cwd, w.config.Workspace)
	}
	if ctx.Err() != nil {
		return nil, errors.New("cancelled before it started")
	}
	label, err := w.register(r.Exec)
	if err != nil {
		return nil, err
	}
	tree, err := w.addTree(r.Exec, label, w.config.Limits.Lowered(r.Limits))
	if err != nil {
		w.forget(r.Exec)
		return nil, err
	}
	stop := func() { go w.stopTree(tree, wire.ProtectedName) }
	session, err := w.quarantine.Begin(quarantine.Command{Exec: r.Exec, Chat: chatOf(r),
		ManagesWorktrees: r.ManagesWorktrees, Stop: stop})
	if err != nil {
		tree.ended.Store(true)
		w.forget(r.Exec)
		return nil, err
	}
	w.mu.Lock()
	tree.session = session
	w.mu.Unlock()
	c, err := w.spawn(r, tree, dir, real)
	if err != nil {
		tree.ended.Store(true)
		w.forget(r.Exec)
		return nil, fmt.Errorf("start %s in %s: %w", w.config.Shell, r.Cwd, err)
	}
	return c, nil
}

// chatOf returns a value that is equal for the commands of a chat. MCP servers read their input, and PocketCoder's own
// scripts manage worktrees: they belong to no chat.
func chatOf(r wire.Request) string {
	if r.Stdin || r.ManagesWorktrees {
		return ""
	}
	return cmp.Or(r.Loopback, r.Exec)
}

// reportQuarantined adds what was quarantined and not reported yet to the result, and says it in its output.
func (w *Worker) reportQuarantined(r wire.Request, c *command, result *wire.Result, stdout, stderr io.Writer) {
	var lines []string
	result.Quarantined, lines = c.session.End()
	to, end := stderr, "\n"
	if r.Terminal != nil {
		to, end = stdout, "\r\n"
	}
	for _, line := range lines {
		if _, err := io.WriteString(to, line+end); err != nil {
			break // the caller is gone
		}
	}
	// what a person creates from now on is not taken, unless the command has left processes; at bwrap they end with it
	for end := time.Now().Add(settleTime); ; time.Sleep(time.Millisecond) {
		if c.isEmpty() {
			c.session.Close()
			return
		}
		if !c.hasMonitor || time.Now().After(end) {
			return
		}
	}
}

func (w *Worker) check(r wire.Request) error {
	switch {
	case r.Exec == "":
		return errors.New("request names no exec")
	case r.Workspace != "" && !w.Serves(r.Workspace):
		return fmt.Errorf("workspace %s is not this worker's, which is %s", r.Workspace, w.config.Workspace)
	case !filepath.IsAbs(r.Cwd):
		return fmt.Errorf("cwd %q is not an absolute path", r.Cwd)
	case strings.ContainsRune(r.Command, 0):
		return errors.New("command contains a NUL byte")
	case r.TimeoutMS < 0 || r.TimeoutMS > math.MaxInt64/int64(time.Millisecond):
		return fmt.Errorf("timeout %d ms is out of range", r.TimeoutMS)
	}
	return nil
}

// contains compares by path component. Both paths must have their symlinks resolved.
func contains(workspace, dir string) bool {
	rel, err := filepath.Rel(workspace, dir)
	return err == nil && filepath.IsLocal(rel)
}

func (w *Worker) register(exec string) (label, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.running[exec]; ok {
		return label{}, fmt.Errorf("exec %s is already running", exec)
	}
	w.running[exec] = 0
	w.serial++
	w.execs.Add(1)
	return w.id.command(exec, w.serial), nil
}

func (w *Worker) setShell(exec string, pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[exec] = pid
}

func (w *Worker) forget(exec string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.serving[exec]; s != nil {
		s.end()
		delete(w.serving, exec)
	}
	delete(w.running, exec)
	w.execs.Done()
}

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
	left           *wire.Left     // processes that run although the shell has exited by itself
	grace          time.Duration  // between the request to end and the kill
	inputOverflow  atomic.Bool    // more input was typed than is buffered
	link           *netrelay.Link // the connection to its network namespace, if it has one
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
