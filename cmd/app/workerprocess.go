package app

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"pocketcoder/cmd/app/worker"
	"pocketcoder/cmd/program"
	"pocketcoder/sandbox/isolation"
)

// workerProcess keeps a sandbox worker running as a child with its own key: it sees nothing of this process. It ends when
// its stdin does, so it ends with us however we end.
type workerProcess struct {
	args    []string
	stderr  io.Writer
	logger  *slog.Logger
	changed func() // it is ready, or not any more
	ready   func(isolation string)
	pid     atomic.Int64           // 0 while none is ready
	status  atomic.Pointer[string] // its isolation level and the reason, as it reported them
}

const (
	workerStop  = 3 * time.Second // to cancel what runs and go
	workerPause = time.Second     // before a worker that ended by itself is started again
)

// Run starts the worker, again when it ends, until ctx ends.
func (w *workerProcess) Run(ctx context.Context) error {
	for {
		err := w.once(ctx)
		w.pid.Store(0)
		w.changed()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.logger.Error("sandbox worker ended; starting it again", "err", err)
		select {
		case <-time.After(workerPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// announce records a worker that is ready. It prints the isolation level if the level has changed.
func (w *workerProcess) announce(pid int, status string) {
	if before := w.status.Swap(&status); before == nil || *before != status {
		w.ready(status)
	}
	w.pid.Store(int64(pid))
	w.changed()
}

func (w *workerProcess) once(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	argv := slices.Concat(program.Launcher, []string{self, "worker", "--lifeline"}, w.args)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "USER=" + os.Getenv("USER"), "LANG=" + os.Getenv("LANG"),
		isolation.ContainerMark + "=" + os.Getenv(isolation.ContainerMark)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us, who then stop it in order
	cmd.Stderr = w.stderr
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start sandbox worker: %w", err)
	}
	lines := bufio.NewReader(stdout)
	ended := make(chan error, 1)
	go func() {
		line, _ := lines.ReadString('\n')
		if status, isReady := strings.CutPrefix(strings.TrimSpace(line), worker.Ready+" "); isReady {
			w.announce(cmd.Process.Pid, status)
		}
		io.Copy(io.Discard, lines)
		ended <- cmd.Wait()
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	lifeline.Close()
	select {
	case <-ended:
	case <-time.After(workerStop):
		cmd.Process.Kill()
		<-ended
	}
	return ctx.Err()
}
