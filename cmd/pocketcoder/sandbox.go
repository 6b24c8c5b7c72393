package main

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

	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

const workerUsage = `pocketcoder worker: run commands for a system elsewhere.

  pocketcoder worker --nats nats://10.0.0.5:4222 --key worker.nk --workspace /srv/project

A worker receives commands that the gate has allowed, on exec.run.<pool>, and runs them in its workspace. It needs only the
worker's key, which gives it no other right. "pocketcoder up" starts a worker of its own. More can join from machines that see
the same workspace. After the first SIGTERM a worker receives no more commands, and ends when its commands have ended; after
the second it ends them.
`

// sandboxTimeout ends a command that nobody ended. OpenCode gives up on one after two minutes unless told otherwise.
const sandboxTimeout = time.Hour

// sandboxCapacity is how many commands at once the worker has been measured with.
const sandboxCapacity = 64

// sandboxDrain is a little more than OpenCode leaves a command unless told otherwise.
const sandboxDrain = 3 * time.Minute

// workerReady begins the line a worker prints once it takes commands: ready <isolation>: <why>.
const workerReady = "ready"

const (
	isolationHelp = "isolation `level`: auto (the strongest that works), bwrap, landlock, container or none (POCKETCODER_ISOLATION)"
	exposeHelp    = "further `directory` that can be read in the sandbox, besides the workspace and the system's programs; may be repeated"
)

// paths is a flag that may be given several times.
type paths []string

func (p *paths) String() string { return "" }

func (p *paths) Set(s string) error {
	*p = append(*p, absolute(s))
	return nil
}

func runWorker(ctx context.Context, env environment, args []string) error {
	fs := newFlags(env, "worker", workerUsage)
	url := fs.String("nats", env.getenv("POCKETCODER_NATS"), "`URL` of NATS (POCKETCODER_NATS)")
	key := fs.String("key", env.getenv("POCKETCODER_KEY"), "`file` with the worker's nkey seed (POCKETCODER_KEY)")
	inPool := fs.String("pool", or(env, "POCKETCODER_POOL", pool), "`pool` of workers to join (POCKETCODER_POOL)")
	workspace := fs.String("workspace", or(env, "POCKETCODER_WORKSPACE", "."), "`directory` commands run in (POCKETCODER_WORKSPACE)")
	home := fs.String("home", "", "`directory` that is HOME of the commands, who share it; pocketcoder/home in your cache directory when empty")
	limits, err := limitFlags(fs, env)
	if err != nil {
		return wrongUsage(env, "worker: %v", err)
	}
	level := fs.String("isolation", or(env, "POCKETCODER_ISOLATION", isolation.Auto), isolationHelp)
	var expose paths
	fs.Var(&expose, "expose", exposeHelp)
	capacity := fs.Int("capacity", sandboxCapacity, "most commands at once; what comes then goes to other workers, or waits")
	drain := fs.Duration("drain", sandboxDrain, "how long running commands may go on after the first SIGTERM or SIGINT")
	lifeline := fs.Bool("lifeline", false, internalFlag+"end at once when stdin ends")
	if _, err := parse(fs, args, 0); err != nil {
		return err
	}
	if *url == "" || *key == "" {
		return wrongUsage(env, "worker: --nats and --key are needed; see pocketcoder worker -h, also for what shows the commands that run")
	}
	if *capacity < 1 || *drain < 0 {
		return wrongUsage(env, "sandbox: --capacity must be at least 1, and --drain not negative")
	}
	if err := limits.check(); err != nil {
		return wrongUsage(env, "worker: %v", err)
	}
	found, err := chooseIsolation(*level)
	if err != nil {
		return wrongUsage(env, "sandbox: --isolation: %v", err)
	}
	ctx, now, end := stopTwice(ctx)
	defer end()
	if *lifeline {
		go func() {
			io.Copy(io.Discard, env.stdin)
			end()
		}()
	}
	logger := slog.New(slog.NewTextHandler(env.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	nc, err := connectWorker(*url, *key)
	if err != nil {
		return err
	}
	defer nc.Close()
	w, err := sandbox.Open(sandbox.Config{
		Workspace: absolute(*workspace), Home: *home, Timeout: limits.timeout, Limits: limits.Limits, Isolation: found, Expose: expose, Log: logger,
	})
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	defer w.Close()
	fmt.Fprintln(env.stdout, workerReady, found)
	server := wire.Server{Handle: w.Handle, Serves: w.Serves, Info: w.Info(), Drain: *drain, Abort: now.Done()}
	server.Info.Capacity, server.Info.Version = *capacity, version()
	if err := wire.Serve(ctx, nc, wire.RunSubject(*inPool), server); err != nil && ctx.Err() == nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	return nil
}

// chooseIsolation finds a level. When there is none the worker runs all the same, and refuses every command with the reason.
func chooseIsolation(level string) (isolation.Found, error) {
	found, err := isolation.Choose(level)
	if err != nil && !errors.Is(err, isolation.ErrUnknown) {
		return isolation.Found{Reason: err.Error()}, nil
	}
	return found, err
}

// stopTwice gives a context that ends with the first signal and one that ends with the second; end ends both.
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
