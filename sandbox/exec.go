package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"time"

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
