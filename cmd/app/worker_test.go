package app

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

func TestWorkerWithoutIsolationRefusesWithTheCure(t *testing.T) {
	is := is.New(t)
	t.Setenv("PATH", t.TempDir())
	choice, err := chooseIsolation("bwrap")
	is.NoErr(err)
	is.Equal(choice.Level, isolation.Level(""))
	is.True(strings.HasPrefix(choice.String(), "refused: no commands can be isolated: bwrap does not work here: bubblewrap is not installed"))
}

// A system that dies while its worker drains leaves no commands behind.
func TestADrainingWorkerEndsWithItsLifeline(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const pool = "default"
	keys, err := natsconf.LoadKeys(t.TempDir())
	is.NoErr(err)
	server, err := natsconf.Start(t.Context(), natsconf.Config{Name: "test", Listen: "127.0.0.1:0",
		StoreDir: expect.MemoryDir(t), Keys: keys.Public, Pools: []string{pool}})
	is.NoErr(err)
	t.Cleanup(server.Close)
	options, err := keys.Options(natsconf.Core, "test")
	is.NoErr(err)
	nc, err := nats.Connect(server.ClientURL(), options...)
	is.NoErr(err)
	t.Cleanup(nc.Close)

	workspace, home := t.TempDir(), t.TempDir()
	lifeline, parent := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	ended, result := make(chan error, 1), make(chan wire.Result, 1)
	go func() {
		ended <- RunWorker(ctx, WorkerOptions{NATS: server.ClientURL(), Key: keys.SeedFile(natsconf.Worker), Pool: pool,
			Workspace: workspace, Home: home, Isolation: "none", Limits: DefaultWorkerLimits(), Drain: time.Hour,
			Lifeline: lifeline, Stdout: io.Discard, Stderr: io.Discard})
	}()
	expect.Eventually(t, "the worker accepts commands", func() bool {
		workers, err := wire.Workers(t.Context(), nc, pool)
		return err == nil && len(workers) == 1
	})
	var output expect.Buffer
	call := func(command string) (wire.Result, error) {
		return wire.Call(t.Context(), nc, wire.RunSubject(pool), wire.Request{Command: command, Cwd: workspace}, &output,
			io.Discard)
	}
	go func() {
		r, err := call("echo begun; exec sleep 3600")
		if err != nil {
			t.Error(err)
		}
		result <- r
	}()
	expect.Eventually(t, "the command runs", func() bool { return output.String() == "begun\n" })
	stop()
	expect.Eventually(t, "the worker drains", func() bool {
		_, err := call("true")
		return errors.Is(err, wire.ErrNoWorker)
	})
	is.Equal(len(result), 0) // the command still runs
	is.NoErr(parent.Close())
	expect.Eventually(t, "the command ends", func() bool { return len(result) == 1 })
	is.Equal((<-result).Reason, wire.Cancelled)
	is.NoErr(<-ended)
}
