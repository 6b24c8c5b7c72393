package app

import (
	"bufio"
	"context"
	"errors"
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

	"pocketcoder/cmd/program"
	"pocketcoder/events/log/sleep"
	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/web/api"
)

// workerProcess runs a worker as a child process, and restarts it. The worker has its own key and sees nothing of this
// process. It ends with this process, however that ends, because its stdin is then closed.
type workerProcess struct {
	Args    []string // of "pocketcoder worker"
	Pool    string
	Stderr  io.Writer
	Logger  *slog.Logger
	Changed func()                 // called when the worker becomes ready or ends
	Ready   func(isolation string) // called when the isolation level is known or changes

	pid    atomic.Int64           // 0 while no worker is ready
	status atomic.Pointer[string] // the isolation level and the reason, as the worker reported them
}

// newWorkerProcess returns the worker of a project. url is that of the log.
func newWorkerProcess(o Options, p projectPaths, url string, keys natsconf.Keys, changed func(),
	ready func(isolation string)) *workerProcess {
	args := append([]string{
		"--nats", url, "--key", keys.SeedFile(natsconf.Worker), "--pool", Pool, "--workspace", p.Workspace,
		"--home", p.Home, "--quarantine", p.Quarantine, "--isolation", o.Isolation,
	}, o.Limits.Args()...)
	for _, dir := range o.Expose {
		args = append(args, "--expose", dir)
	}
	return &workerProcess{Args: args, Pool: Pool, Stderr: o.Stderr, Logger: o.Logger, Changed: changed, Ready: ready}
}

// PID returns the worker's process id, 0 while no worker is ready.
func (w *workerProcess) PID() int { return int(w.pid.Load()) }

const (
	workerStop  = 3 * time.Second // for a worker to cancel its commands and end
	workerPause = time.Second     // before a worker that ended is started again
)

// Run starts the worker, and restarts it when it ends, until ctx ends. It returns ErrWorkerUnusable if the first
// worker can run no commands.
func (w *workerProcess) Run(ctx context.Context) error {
	for {
		err := w.once(ctx)
		w.pid.Store(0)
		w.Changed()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, ErrWorkerUnusable) && w.status.Load() == nil {
			return err
		}
		w.Logger.Error("sandbox worker ended; starting it again", "err", err)
		if err := sleep.For(ctx, workerPause); err != nil {
			return err
		}
	}
}

// announce stores the status of a worker that is ready. It calls Ready if the isolation level has changed.
func (w *workerProcess) announce(pid int, status string) {
	if before := w.status.Swap(&status); before == nil || *before != status {
		w.Ready(status)
	}
	w.pid.Store(int64(pid))
	w.Changed()
}

// read reads the first line of a worker: it is ready, or the returned error says why it cannot run commands.
func (w *workerProcess) read(pid int, line string) error {
	word, text, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch word {
	case workerReady:
		w.announce(pid, text)
	case workerUnusable:
		return fmt.Errorf("%w: %s", ErrWorkerUnusable, text)
	}
	return nil
}

func (w *workerProcess) once(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	argv := slices.Concat(program.Launcher, []string{self, "worker", "--lifeline"}, w.Args)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "USER=" + os.Getenv("USER"),
		"LANG=" + os.Getenv("LANG"),
		isolation.ContainerMark + "=" + os.Getenv(isolation.ContainerMark)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // this process stops the worker after Ctrl-C, in order
	cmd.Stderr = w.Stderr
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
		unusable := w.read(cmd.Process.Pid, line)
		io.Copy(io.Discard, lines)
		if err := cmd.Wait(); unusable == nil {
			ended <- err
			return
		}
		ended <- unusable
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

// Health returns the state of the worker and its isolation level. A worker without a level reports "refused"
// (isolation.Choice) and refuses every command.
func (w *workerProcess) Health() api.Part {
	pid := w.pid.Load()
	part := api.Part{State: api.Starting}
	if pid != 0 {
		part.State = api.Ready
	}
	detail := map[string]any{"pid": pid, "pool": w.Pool}
	if status := w.status.Load(); status != nil {
		level, reason, _ := strings.Cut(*status, ": ")
		detail["isolation"], detail["reason"] = level, reason
		if pid != 0 && level == "refused" {
			part.State = api.Degraded
		}
	}
	part.Detail = detail
	return part
}
