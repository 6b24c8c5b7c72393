package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/cmd/app"
	"pocketcoder/cmd/datadir"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox/wire"
)

// remoteWorker is "pocketcoder sandbox" on a system's NATS, and the system's own connection.
type remoteWorker struct {
	t         *testing.T
	nc        *nats.Conn
	cmd       *exec.Cmd
	workspace string
}

func startWorker(t *testing.T) *remoteWorker {
	t.Helper()
	expect.Slow(t, "builds a program")
	is := is.New(t)
	d := datadir.Dir(t.TempDir())
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	is.NoErr(err)
	connected, err := openNATSInstance(t.Context(), d, keys)
	is.NoErr(err)
	t.Cleanup(connected.close)
	nc, url := connected.Conn, connected.server.ClientURL()
	w := &remoteWorker{t: t, nc: nc, workspace: t.TempDir()}
	w.cmd = exec.Command(pocketcoder(t), "worker", "--lifeline", "--nats", url, "--isolation", "none",
		"--key", keys.SeedFile(natsconf.Worker), "--workspace", w.workspace, "--capacity", "2")
	w.cmd.Stderr = os.Stderr
	_, err = w.cmd.StdinPipe() // the lifeline
	is.NoErr(err)
	is.NoErr(w.cmd.Start())
	t.Cleanup(func() { w.cmd.Process.Kill(); w.cmd.Wait() })
	expect.Eventually(t, "the worker says who it is", func() bool {
		workers, err := wire.Workers(t.Context(), nc, app.Pool)
		return err == nil && len(workers) == 1 && workers[0].Capacity == 2 && workers[0].Isolation == "none" &&
			workers[0].Workspace == w.workspace
	})
	return w
}

// startCommand starts a command that ends when the file NAME.end is there, and returns once it has begun.
func (w *remoteWorker) startCommand(name string) <-chan wire.Result {
	w.t.Helper()
	ended := make(chan wire.Result, 1)
	go func() {
		command := ": > " + name + "; while ! [ -e " + name + ".end ]; do sleep 0.01; done"
		result, err := w.call(wire.Request{Command: command, Cwd: w.workspace, Workspace: w.workspace})
		if err != nil {
			w.t.Error(err)
		}
		ended <- result
	}()
	expect.Eventually(w.t, "it runs", func() bool {
		_, err := os.Stat(filepath.Join(w.workspace, name))
		return err == nil
	})
	return ended
}

func (w *remoteWorker) call(r wire.Request) (wire.Result, error) {
	return wire.Call(w.t.Context(), w.nc, wire.RunSubject(app.Pool), r, io.Discard, io.Discard)
}

// awaitRefusal waits until the worker accepts no more commands.
func (w *remoteWorker) awaitRefusal() {
	w.t.Helper()
	expect.Eventually(w.t, "the worker takes nothing more", func() bool {
		_, err := w.call(wire.Request{Command: "true", Cwd: w.workspace})
		return errors.Is(err, wire.ErrNoWorker)
	})
}

// A worker that is stopped finishes its commands. The second signal ends them.
func TestStoppedWorkerFinishesItsCommands(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := startWorker(t)
	first, second := w.startCommand("first"), w.startCommand("second")
	is.NoErr(w.cmd.Process.Signal(syscall.SIGTERM))
	w.awaitRefusal()
	is.NoErr(os.WriteFile(filepath.Join(w.workspace, "first.end"), nil, 0o600))
	result := <-first
	is.Equal(result.Reason, wire.Exited)
	is.Equal(result.ExitCode, 0)
	is.NoErr(w.cmd.Process.Signal(syscall.SIGINT))
	is.Equal((<-second).Reason, wire.Cancelled)
	is.NoErr(w.cmd.Wait())
}
