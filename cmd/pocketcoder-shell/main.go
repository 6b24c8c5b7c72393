// Command pocketcoder-shell is the shell OpenCode's bash tool runs: pocketcoder-shell -c COMMAND. It runs nothing itself.
// It asks on exec.request.<engine> for the command to be run, writes what comes back to stdout and stderr as it comes,
// and ends with the command's exit code.
//
//	OPENCODE_SESSION_ID, OPENCODE_CALL_ID  which tool call this is; set by our plugin. Without them: refused
//	POCKETCODER_NATS_URL                   where NATS listens
//	POCKETCODER_SHELL_KEY                  path of the nkey seed to connect with
//	POCKETCODER_ENGINE                     which OpenCode server runs it
//
// Exit 126 and one line on stderr mean that the command was not run. SIGTERM, SIGINT and SIGHUP cancel it, exit 128+n; so
// does a closed stdout or stderr, exit 141. Exit 255 and a line on stderr: the answer was lost, the command may have run.
//
// It links only nats.go and sandbox/wire, because it starts once per command.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"pocketcoder/sandbox/wire"
)

const connectWithin = 10 * time.Second

func main() {
	// Most commands end before a first collection would begin; the limit bounds the others.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(32 << 20)
	// A write to a closed pipe then is an error, and the command is cancelled instead of left to itself.
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(context.Background())
	go cancelOnSignal(cancel)
	code, err := run(ctx, cancel)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pocketcoder-shell:", err)
	}
	os.Exit(code)
}

// stopSignal is why a signal cancelled the command.
type stopSignal struct{ syscall.Signal }

func (s stopSignal) Error() string { return "stopped by " + s.String() }

func cancelOnSignal(cancel context.CancelCauseFunc) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	cancel(stopSignal{(<-signals).(syscall.Signal)})
}

// run asks for the command and returns the exit code, and what there is to say about it.
func run(ctx context.Context, cancel context.CancelCauseFunc) (code int, err error) {
	r, engine, err := request()
	if err != nil {
		return wire.ExitRefused, fmt.Errorf("not run: %w", err)
	}
	nc, err := connect(cancel)
	if err != nil {
		return wire.ExitRefused, fmt.Errorf("not run: connect to PocketCoder: %w", err)
	}
	stdout, stderr := &output{File: os.Stdout}, &output{File: os.Stderr}
	result, err := wire.Call(ctx, nc, wire.RequestSubject(engine), r, stdout, stderr)
	var stopped stopSignal
	switch {
	case errors.As(context.Cause(ctx), &stopped):
		return 128 + int(stopped.Signal), nil
	case err != nil && ctx.Err() != nil:
		return wire.ExitRefused, fmt.Errorf("not run: %w", context.Cause(ctx))
	case err != nil:
		return wire.ExitRefused, fmt.Errorf("not run: %w", err)
	case stdout.closed.Load() || stderr.closed.Load():
		return 128 + int(syscall.SIGPIPE), nil
	}
	return result.ExitCode, told(result)
}

// told says what the exit code does not.
func told(r wire.Result) error {
	switch r.Reason {
	case wire.Refused:
		return fmt.Errorf("not run: %s", r.Error)
	case wire.TimedOut:
		return errors.New("stopped: the command took longer than allowed")
	case wire.Cancelled:
		return errors.New("stopped: the command was cancelled")
	case wire.Memory, wire.Processes, wire.FileSize, wire.CPUTime, wire.OpenFiles, wire.OutputSize:
		return fmt.Errorf("stopped: the command passed its limit of %s", r.Reason)
	case wire.Lost:
		return fmt.Errorf("lost, the command may have run: %s", r.Error)
	}
	return nil
}

// request is what to ask for and the engine to ask as.
func request() (r wire.Request, engine string, err error) {
	if len(os.Args) != 3 || os.Args[1] != "-c" {
		return r, "", errors.New("this shell only runs the commands of an agent: pocketcoder-shell -c COMMAND")
	}
	r.Command = os.Args[2]
	if r.Session = os.Getenv("OPENCODE_SESSION_ID"); r.Session == "" {
		return r, "", errors.New("OPENCODE_SESSION_ID is not set, so this is not the command of an agent")
	}
	if r.Call = os.Getenv("OPENCODE_CALL_ID"); r.Call == "" {
		return r, "", errors.New("OPENCODE_CALL_ID is not set, so this is not the command of an agent")
	}
	if engine = os.Getenv("POCKETCODER_ENGINE"); !wire.IsToken(engine) {
		return r, "", errors.New("POCKETCODER_ENGINE is not set to 1 to 64 letters, digits, _ or -")
	}
	// Not os.Getwd, which believes $PWD: two ways to the same directory would be two answers to what was allowed.
	if r.Cwd, err = syscall.Getwd(); err != nil {
		return r, "", fmt.Errorf("read the working directory: %w", err)
	}
	return r, engine, nil
}

// connect refuses what NATS_URL and the like could smuggle in: there is no default for either variable. What the server
// denies later cancels the call.
func connect(cancel context.CancelCauseFunc) (*nats.Conn, error) {
	url, file := os.Getenv("POCKETCODER_NATS_URL"), os.Getenv("POCKETCODER_SHELL_KEY")
	if url == "" {
		return nil, errors.New("POCKETCODER_NATS_URL is not set")
	}
	if file == "" {
		return nil, errors.New("POCKETCODER_SHELL_KEY is not set")
	}
	key, err := nats.NkeyOptionFromSeed(file)
	if err != nil {
		return nil, err
	}
	return nats.Connect(url, key, nats.CustomInboxPrefix(wire.ShellInbox), nats.Name("pocketcoder-shell"),
		nats.NoReconnect(), nats.Timeout(connectWithin),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { cancel(err) }))
}

// output remembers that nobody reads it any more.
type output struct {
	*os.File
	closed atomic.Bool
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.File.Write(p)
	if err != nil {
		o.closed.Store(true)
	}
	return n, err
}
