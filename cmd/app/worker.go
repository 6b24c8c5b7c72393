package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"pocketcoder/cmd/program"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// workerReady begins the line that a worker prints when it accepts commands: ready <isolation>: <reason>.
const workerReady = "ready"

// workerUnusable begins the line that a worker prints instead of the one with workerReady, if RunWorker returns
// ErrWorkerUnusable. The reason follows.
const workerUnusable = "unusable"

// ErrWorkerUnusable is the error if a worker can run no commands as it was started. Another start would end in the same
// way.
var ErrWorkerUnusable = errors.New("the sandbox cannot run commands")

type WorkerOptions struct {
	NATS, Key       string // URL, and the file with the nkey seed
	Pool            string
	Workspace, Home string
	Quarantine      string // of protected names; the default of sandbox.Config if empty
	Isolation       string
	Expose          []string
	Limits          *WorkerLimits
	Capacity        int           // maximum of concurrent commands
	Drain           time.Duration // how long running commands may continue after the first signal
	Lifeline        io.Reader     // the worker ends at its EOF; nil for none
	Stdout, Stderr  io.Writer
}

// RunWorker runs a sandbox worker in this process, until a signal arrives or ctx ends. The worker connects to NATS with
// its key and runs the commands of its pool in its workspace. After the first signal it accepts no more commands and
// waits for the running ones. The second signal ends them. RunWorker returns isolation.ErrUnknownLevel if there is no
// such isolation level. It must not know the system that sends the commands.
func RunWorker(ctx context.Context, o WorkerOptions) error {
	choice, err := chooseIsolation(o.Isolation)
	if err != nil {
		return err
	}
	ctx, now, end := stopTwice(ctx)
	defer end()
	if o.Lifeline != nil {
		go func() {
			io.Copy(io.Discard, o.Lifeline)
			end()
		}()
	}
	logger := slog.New(slog.NewTextHandler(o.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	nc, err := connectWorker(o.NATS, o.Key)
	if err != nil {
		return err
	}
	defer nc.Close()
	w, err := sandbox.Open(sandbox.Config{
		Workspace: o.Workspace, Home: o.Home, Quarantine: o.Quarantine, Timeout: o.Limits.Timeout,
		Limits: o.Limits.Limits, Isolation: choice, Expose: o.Expose, Log: logger,
	})
	if err != nil {
		fmt.Fprintln(o.Stdout, workerUnusable, display.OneLine(err.Error(), 1000))
		return fmt.Errorf("%w: %w", ErrWorkerUnusable, err)
	}
	defer w.Close()
	fmt.Fprintln(o.Stdout, workerReady, choice)
	server := wire.Server{Handle: w.Handle, Serves: w.Serves, Holds: w.Holds, Info: w.Info(), Drain: o.Drain,
		Abort: now.Done()}
	server.Info.Capacity, server.Info.Version = o.Capacity, program.Version()
	if err := wire.Serve(ctx, nc, wire.RunSubject(o.Pool), server); err != nil && ctx.Err() == nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	return nil
}

// chooseIsolation chooses the isolation level. Without a usable level, the worker runs and refuses every command with
// the reason.
func chooseIsolation(level string) (isolation.Choice, error) {
	choice, err := isolation.Choose(level)
	if err != nil && !errors.Is(err, isolation.ErrUnknownLevel) {
		return isolation.Choice{Reason: err.Error()}, nil
	}
	return choice, err
}

// stopTwice returns a context that the first signal cancels and one that the second signal cancels. end cancels both.
func stopTwice(ctx context.Context) (first, second context.Context, end func()) {
	first, stop := context.WithCancel(ctx)
	second, end = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(second, stop)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals
		end()
	}()
	return first, second, end
}

func connectWorker(url, keyFile string) (*nats.Conn, error) {
	host, _ := os.Hostname()
	options, err := natsconf.Options(keyFile, natsconf.Worker, "sandbox worker on "+host)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	nc, err := nats.Connect(url, options...)
	if err != nil {
		return nil, fmt.Errorf("sandbox: connect to %s: %w", url, err)
	}
	return nc, nil
}
