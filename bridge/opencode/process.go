package opencode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// How long OpenCode may take to stop: less than 5 s in all. Measured: dispose 0.15 s with a command running, SIGTERM 0.2 s.
const (
	disposeTime = 1500 * time.Millisecond
	termTime    = 2 * time.Second
	pipeTime    = 500 * time.Millisecond
)

// child is a running OpenCode.
type child struct {
	cmd     *exec.Cmd
	listens *announcement
	exited  chan struct{} // closed when it has ended
	err     error         // how; set before exited is closed
}

// announcement reads what OpenCode prints until it says that it listens at its address. What answers there before is another
// program, which has taken the port and is to see no password.
type announcement struct {
	url     string
	printed tail
	made    chan struct{} // closed then
}

func (a *announcement) Write(p []byte) (int, error) {
	if isDone(a.made) {
		return len(p), nil
	}
	if bytes.Contains(append(a.printed.kept, p...), []byte("listening on "+a.url+"\n")) {
		close(a.made)
	}
	return a.printed.Write(p)
}

// startChild starts cmd from a goroutine that keeps its thread for the child's life: Pdeathsig counts the thread, not the
// process, and Go ends idle threads' goroutines as it likes.
func startChild(cmd *exec.Cmd, listens *announcement) (*child, error) {
	cmd.SysProcAttr = childAttributes()
	cmd.WaitDelay = pipeTime
	c := &child{cmd: cmd, listens: listens, exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(c.exited)
		}
	}()
	return c, <-started
}

// stop ends the child: cleanly when it answers, by force when it does not.
func (c *child) stop(client *Client) {
	if isDone(c.listens.made) && !isDone(c.exited) { // otherwise another program may have its port
		ctx, cancel := context.WithTimeout(context.Background(), disposeTime)
		client.Dispose(ctx) // a server that cannot is killed all the same
		cancel()
	}
	c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.exited:
	case <-time.After(termTime):
	}
	syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // and what it left in its group
	<-c.exited
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pidFile remembers a child, so that one that outlived us can be told from an unrelated process with its pid.
type pidFile struct {
	PID int    `json:"pid"`
	ID  string `json:"id"`
}

func writePID(path string, pid int) error {
	b, err := json.Marshal(pidFile{pid, processID(pid)})
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// killLeftOver kills the child the pid file names if it still runs, and waits until it is gone.
func killLeftOver(path string) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var left pidFile
	if json.Unmarshal(b, &left) != nil || left.PID <= 1 || left.ID == "" {
		return os.Remove(path) // a crash cut it short
	}
	for deadline := time.Now().Add(5 * time.Second); processID(left.PID) == left.ID; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("end left-over opencode: process %d does not die", left.PID)
		}
		syscall.Kill(-left.PID, syscall.SIGKILL)
	}
	return os.Remove(path)
}
