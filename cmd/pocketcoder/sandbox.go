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
	"pocketcoder/sandbox/wire"
)

const sandboxUsage = `pocketcoder sandbox: run commands for a system elsewhere.

A worker takes commands that passed the gate from exec.run.<pool> and runs them in its workspace. It needs nothing but the
worker's key, and can do nothing else with it. "pocketcoder up" starts one by itself; more can join from other machines
that see the same workspace.

  pocketcoder sandbox --nats nats://10.0.0.5:4222 --key worker.nk --workspace /srv/project
`

// sandboxTimeout ends a command that nobody ended. OpenCode gives up on one after two minutes unless told otherwise.
const sandboxTimeout = time.Hour

// workerReady is the line a worker prints once it takes commands.
const workerReady = "ready"

func runSandbox(ctx context.Context, env environment, args []string) error {
	fs := newFlags(env, "sandbox", sandboxUsage)
	url := fs.String("nats", env.getenv("POCKETCODER_NATS"), "`URL` of NATS (POCKETCODER_NATS)")
	key := fs.String("key", env.getenv("POCKETCODER_KEY"), "`file` with the worker's nkey seed (POCKETCODER_KEY)")
	inPool := fs.String("pool", or(env, "POCKETCODER_POOL", pool), "`pool` of workers to join (POCKETCODER_POOL)")
	workspace := fs.String("workspace", or(env, "POCKETCODER_WORKSPACE", "."), "`directory` commands run in (POCKETCODER_WORKSPACE)")
	timeout := fs.Duration("timeout", sandboxTimeout, "longest time a command may run; 0 is no limit")
	lifeline := fs.Bool("lifeline", false, "end when stdin ends: how a parent makes sure of it")
	if _, err := parse(fs, args, 0); err != nil {
		return err
	}
	if *url == "" || *key == "" {
		return errors.New("sandbox: --nats and --key are needed")
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if *lifeline {
		go func() {
			io.Copy(io.Discard, env.stdin)
			stop()
		}()
	}
	logger := slog.New(slog.NewTextHandler(env.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	nc, err := connectWorker(*url, *key)
	if err != nil {
		return err
	}
	defer nc.Close()
	w, err := sandbox.Open(sandbox.Config{Workspace: absolute(*workspace), Timeout: *timeout, Log: logger})
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	defer w.Close()
	fmt.Fprintln(env.stdout, workerReady)
	if err := wire.Serve(ctx, nc, wire.RunSubject(*inPool), "workers", w.Exec); err != nil && ctx.Err() == nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	return nil
}

func connectWorker(url, keyFile string) (*nats.Conn, error) {
	key, err := nats.NkeyOptionFromSeed(keyFile)
	if err != nil {
		return nil, fmt.Errorf("sandbox: read key: %w", err)
	}
	host, _ := os.Hostname()
	nc, err := nats.Connect(url, key, nats.CustomInboxPrefix(natsconf.InboxPrefix(natsconf.Worker)),
		nats.Name("sandbox worker on "+host), nats.MaxReconnects(-1), nats.ReconnectWait(250*time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("sandbox: connect to %s: %w", url, err)
	}
	return nc, nil
}
