package opencode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"pocketcoder/bridge/opencode/install"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/netrelay"
)

// pipeTime limits how long the end of OpenCode's output is awaited after its process has ended.
const pipeTime = 500 * time.Millisecond

type child struct {
	cmd     *exec.Cmd
	listens *announcement
	exited  chan struct{} // closed when it has ended
	err     error         // how it has ended; set before exited is closed

	prepared *isolation.PreparedCommand // how it was isolated
	link     *netrelay.Link             // into its network namespace, at bwrap
}

// announcement reads OpenCode's output until OpenCode has printed that it listens at url. Until then, another program
// may have taken the port, which must not receive the password.
type announcement struct {
	url     string
	printed install.OutputTail
	made    chan struct{} // closed when OpenCode listens
}

func (a *announcement) Write(p []byte) (int, error) {
	if isDone(a.made) {
		return len(p), nil
	}
	if bytes.Contains(slices.Concat(a.printed.Bytes(), p), []byte("listening on "+a.url+"\n")) {
		close(a.made)
	}
	return a.printed.Write(p)
}

// start starts the child from a goroutine that is locked to its thread until the child ends. Pdeathsig fires when the
// thread ends, not the process, and Go may end idle threads. A thread that has entered an isolation is not used again.
func (c *child) start() error {
	c.cmd.SysProcAttr = childAttributes()
	if c.prepared.SetAttributes != nil {
		c.prepared.SetAttributes(c.cmd.SysProcAttr)
	}
	c.cmd.WaitDelay = pipeTime
	started := make(chan error, 1)
	run := func() error {
		if c.prepared.Confine != nil {
			if err := c.prepared.Confine(); err != nil {
				return err
			}
		}
		return c.cmd.Start()
	}
	isolation.RunOnThread(func() {
		err := run()
		started <- err
		if err == nil {
			c.err = c.cmd.Wait()
			c.release()
			close(c.exited)
		}
	})
	return <-started
}

func (c *child) release() {
	if c.link != nil {
		c.link.Close()
	}
	if c.prepared != nil {
		c.prepared.Close()
	}
}

// stop kills the child. An OpenCode that is asked to stop fails the calls whose requests and questions wait as if the
// user had rejected them, and ends the other turns as aborted (behaviour stop). After a kill, as after a crash,
// ingest.Ingest records what was interrupted (behaviour kill).
func (c *child) stop() {
	if isDone(c.exited) { // another process may have its pid
		syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // what is left of its group
		return
	}
	all := killTree(c.cmd.Process.Pid)
	<-c.exited
	awaitGone(all)
}

type process struct {
	pid int
	id  string // see processID
}

// killTree kills the leader of a process group, the rest of its group, and its descendants, because each command of
// OpenCode has a group of its own. It returns those that it found.
func killTree(leader int) (all []process) {
	all = processTree(leader)
	syscall.Kill(-leader, syscall.SIGKILL)
	for _, p := range all {
		if processID(p.pid) == p.id {
			syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
	return all
}

// awaitGone waits until none of the processes is left, at most 5 s.
func awaitGone(all []process) (left []process) {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		all = slices.DeleteFunc(all, func(p process) bool { return processID(p.pid) != p.id })
		if len(all) == 0 || time.Now().After(deadline) {
			return all
		}
	}
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pidFile identifies a child, so that a child that outlived its supervisor differs from an unrelated process with the
// same pid.
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
	if processID(left.PID) == left.ID {
		if all := awaitGone(killTree(left.PID)); len(all) > 0 {
			return fmt.Errorf("end left-over opencode: process %d does not die", all[0].pid)
		}
	}
	return os.Remove(path)
}
