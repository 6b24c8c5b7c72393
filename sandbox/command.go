package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/wire"
)

// bufferSize is what one stream of one command may hold here, beside its pipe: what a pipe holds by default (pipe(7)).
// Measured, it passes 1.5 GB/s on, and neither more of it nor a larger pipe helps.
const bufferSize = 64 << 10

// buffers are used again: measured with 64 short commands at once, clearing new ones costs a third of the throughput.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// killPoll is how often the survivors of a cancelled command are counted: nothing tells when a process that is not our
// child has ended.
const killPoll = 10 * time.Millisecond

// command is one running command. Its shell stays unreaped until reap, so that pid keeps naming it and its group.
type command struct {
	process        *os.Process
	label          label
	stdout, stderr *os.File
	exited         chan struct{}
}

// spawn starts the shell. The thread that forks must outlive it, because the kernel sends the parent-death signal when
// that thread ends, not the process: so it stays locked until the shell has exited.
func (w *Worker) spawn(r wire.Request, l label, dir *os.File, real string) (*command, error) {
	c := &command{label: l, exited: make(chan struct{})}
	files, err := c.open()
	for _, f := range files {
		defer f.Close()
	}
	if err != nil {
		return nil, err
	}
	attr := &os.ProcAttr{Dir: enter(dir, real), Env: w.environment(r), Files: files}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		p, err := startStopped([]string{w.config.Shell, "-c", r.Command}, attr)
		if err != nil {
			started <- err
			return
		}
		w.setShell(r.Exec, p.Pid) // before it is labelled: a labelled zombie that is no shell is reaped as an orphan
		l.stick(p.Pid)
		c.process = p
		started <- nil
		awaitExit(p.Pid)
		close(c.exited)
	}()
	if err := <-started; err != nil {
		c.close()
		if e := new(os.PathError); errors.As(err, &e) {
			err = e.Err
		}
		return nil, err
	}
	return c, nil
}

// open returns stdin, stdout and stderr of the shell and keeps the other ends.
func (c *command) open() (files []*os.File, err error) {
	stdin, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	files = append(files, stdin)
	for _, ours := range []**os.File{&c.stdout, &c.stderr} {
		read, write, err := os.Pipe()
		if err != nil {
			c.close()
			return files, err
		}
		*ours = read
		files = append(files, write)
	}
	return files, nil
}

func (c *command) close() {
	for _, f := range []*os.File{c.stdout, c.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// copy passes one stream on until its end.
func (w *Worker) copy(ctx context.Context, to io.Writer, from *os.File, exec string) {
	defer from.Close()
	buffer := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	for {
		n, err := from.Read(buffer[:])
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

// wait returns why the command is over, or has to be.
func (c *command) wait(ctx context.Context, limit time.Duration, finished <-chan struct{}) wire.Reason {
	var expired <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
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
	}
	if isClosed(finished) {
		return wire.Exited
	}
	return reason
}

// end kills the command's whole tree and waits until its output is passed on.
func (c *command) end(finished <-chan struct{}) {
	shell := c.process.Pid
	isShell := func(pid int) bool { return pid == shell }
	syscall.Kill(-shell, syscall.SIGTERM)
	grace := time.NewTimer(wire.KillGrace)
	defer grace.Stop()
	for ended := false; !ended; {
		select {
		case <-grace.C:
			ended = true
		case <-time.After(killPoll):
			ended = isClosed(finished) && len(members(c.label.on, isShell)) == 0
		}
	}
	syscall.Kill(-shell, syscall.SIGKILL)
	kill(c.label.on, isShell)
	// At most a second and a half has passed. All that could write is dead, so what the pipes hold is read at once; only a process that none of this reached
	// could keep them open, and it must not keep the result back.
	soon := time.Now().Add(wire.KillGrace / 2)
	c.stdout.SetReadDeadline(soon)
	c.stderr.SetReadDeadline(soon)
	<-finished
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// reap takes the shell's status from wait(2). ExitCode is 128+n for signal n, as shells have it.
func (c *command) reap(reason wire.Reason) wire.Result {
	state, err := c.process.Wait()
	if err != nil {
		return wire.Result{ExitCode: wire.ExitLost, Reason: wire.Lost, Error: fmt.Sprintf("wait for shell: %v", err)}
	}
	status := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return wire.Result{ExitCode: 128 + int(status.Signal()), Signal: unix.SignalName(status.Signal()), Reason: reason}
	}
	return wire.Result{ExitCode: status.ExitStatus(), Reason: reason}
}
