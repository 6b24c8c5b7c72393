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

// workerReady begins the line a worker prints once it takes commands: ready <isolation>: <why>.
const workerReady = "ready"

// workerOptions say what a worker runs commands in, and for whom.
type workerOptions struct {
	nats, key       string // URL, and the file with the nkey seed
	pool            string
	workspace, home string
	isolation       string
	expose          []string
	limits          *commandLimits
	capacity        int           // most commands at once
	drain           time.Duration // how long running commands may go on after the first signal
	lifeline        io.Reader     // the worker ends when this does; nil for one that ends with signals alone
	stdout, stderr  io.Writer
}

// runWorkerHere runs a sandbox worker in this process, until a signal comes or ctx ends. It returns isolation.ErrUnknown if there is
// no such isolation level.
func runWorkerHere(ctx context.Context, o workerOptions) error {
	found, err := chooseIsolation(o.isolation)
	if err != nil {
		return err
	}
	ctx, now, end := stopTwice(ctx)
	defer end()
	if o.lifeline != nil {
		go func() {
			io.Copy(io.Discard, o.lifeline)
			end()
		}()
	}
	logger := slog.New(slog.NewTextHandler(o.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	nc, err := connectWorker(o.nats, o.key)
	if err != nil {
		return err
	}
	defer nc.Close()
	w, err := sandbox.Open(sandbox.Config{
		Workspace: o.workspace, Home: o.home, Timeout: o.limits.timeout, Limits: o.limits.Limits, Isolation: found, Expose: o.expose, Log: logger,
	})
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	defer w.Close()
	fmt.Fprintln(o.stdout, workerReady, found)
	server := wire.Server{Handle: w.Handle, Serves: w.Serves, Info: w.Info(), Drain: o.drain, Abort: now.Done()}
	server.Info.Capacity, server.Info.Version = o.capacity, version()
	if err := wire.Serve(ctx, nc, wire.RunSubject(o.pool), server); err != nil && ctx.Err() == nil {
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
