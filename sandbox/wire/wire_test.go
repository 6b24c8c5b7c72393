package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/sandbox/wire"
)

var hello = wire.Request{Command: "hello", Cwd: "/"}

func TestOutputArrivesWholeAndInOrder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := pair(t, func(_ context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		stdout.Write(bytes.Repeat(all, 20_000)) // 5 MB of every byte there is
		stderr.Write([]byte{0, 0xff, '\r', '\n', 0x1b})
		stdout.Write(nil)
		fmt.Fprintf(stdout, "%s|%s|%s|%s|%d", r.Session, r.Call, r.Command, r.Cwd, r.TimeoutMS)
		return wire.Result{ExitCode: 137, Signal: "SIGKILL", Reason: wire.TimedOut, DurationMS: 42}
	})
	var out, errs bytes.Buffer
	r := wire.Request{Session: "ses_1", Call: "functions.bash:0", Command: "echo 'ä\n\x1b'", Cwd: "/tmp/ü", TimeoutMS: 9}
	result, err := wire.Call(t.Context(), nc, subject, r, &out, &errs)
	is.NoErr(err)
	is.Equal(result, wire.Result{ExitCode: 137, Signal: "SIGKILL", Reason: wire.TimedOut, DurationMS: 42,
		StdoutBytes: int64(out.Len()), StderrBytes: 5})
	is.Equal(errs.Bytes(), []byte{0, 0xff, '\r', '\n', 0x1b})
	for i, b := range out.Bytes()[:256*20_000] {
		if b != byte(i) {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	is.Equal(out.String()[256*20_000:], "ses_1|functions.bash:0|echo 'ä\n\x1b'|/tmp/ü|9")
}

func TestASlowReaderBoundsTheOutputInFlight(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 100_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			var written, most atomic.Int64
			total := int64(size) * 1000
			nc := pair(t, func(_ context.Context, _ wire.Request, stdout, stderr io.Writer) wire.Result {
				for w := stdout; written.Load() < total; {
					n, _ := w.Write(make([]byte, size))
					written.Add(int64(n))
					if w = stderr; written.Load()%2 == 0 {
						w = stdout
					}
				}
				return wire.Result{}
			})
			var read int64
			reader := writer(func(p []byte) (int, error) {
				read += int64(len(p))
				most.Store(max(most.Load(), written.Load()-read))
				return len(p), nil
			})
			result, err := wire.Call(t.Context(), nc, subject, hello, reader, reader)
			is.NoErr(err)
			is.Equal(result.StdoutBytes+result.StderrBytes, total)
			is.Equal(read, total)
			is.True(most.Load() <= wire.Window) // a message costs more than its bytes, so many small ones stay far below
		})
	}
}

func TestCommandsAtTheSameTimeDoNotMix(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const many = 50
	var together sync.WaitGroup
	together.Add(many)
	nc := pair(t, func(_ context.Context, r wire.Request, stdout, _ io.Writer) wire.Result {
		together.Done()
		together.Wait() // all handlers run at the same time
		for range 100 {
			io.WriteString(stdout, r.Command)
		}
		return wire.Result{}
	})
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			var out bytes.Buffer
			command := fmt.Sprintf("<%d>", i)
			_, err := wire.Call(t.Context(), nc, subject, wire.Request{Command: command, Cwd: "/"}, &out, io.Discard)
			if err != nil || out.String() != strings.Repeat(command, 100) {
				t.Errorf("%s: %v, got %.80q", command, err, out.String())
			}
		})
	}
	all.Wait()
	is.Equal(nc.NumSubscriptions(), 0) // all subscriptions of the call are removed
}

func TestCancelReachesTheHandlerAndItsResultComesBack(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := pair(t, func(ctx context.Context, _ wire.Request, stdout, _ io.Writer) wire.Result {
		io.WriteString(stdout, "running")
		<-ctx.Done()
		io.WriteString(stdout, ", stopped")
		return wire.Result{ExitCode: 143, Signal: "SIGTERM", Reason: wire.Cancelled}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	result, err := wire.Call(ctx, nc, subject, hello, writer(func(p []byte) (int, error) {
		cancel()
		return out.Write(p)
	}), io.Discard)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Cancelled)
	is.Equal(result.Signal, "SIGTERM")
	is.Equal(out.String(), "running, stopped")
}

func TestAWriterThatFailsCancels(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := pair(t, func(ctx context.Context, _ wire.Request, stdout, _ io.Writer) wire.Result {
		for ctx.Err() == nil {
			io.WriteString(stdout, "y\n")
		}
		return wire.Result{ExitCode: 141, Reason: wire.Cancelled}
	})
	result, err := wire.Call(t.Context(), nc, subject, hello, writer(func([]byte) (int, error) {
		return 0, errors.New("broken pipe")
	}), io.Discard)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Cancelled)
}

func TestAWriterThatBlocksDoesNotBlockCancel(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	stopped := make(chan bool, 1)
	nc := pair(t, func(ctx context.Context, _ wire.Request, stdout, _ io.Writer) wire.Result {
		_, err := stdout.Write(make([]byte, 10*wire.Window))
		stopped <- ctx.Err() != nil && err != nil
		return wire.Result{Reason: wire.Cancelled}
	})
	ctx, cancel := context.WithCancel(t.Context())
	stuck := make(chan struct{})
	defer close(stuck)
	result, err := wire.Call(ctx, nc, subject, hello, writer(func(p []byte) (int, error) {
		cancel()
		<-stuck
		return len(p), nil
	}), io.Discard)
	is.NoErr(err)
	is.True(<-stopped)
	is.Equal(result.Reason, wire.Lost) // the result waits behind the blocked writer
}

func TestBadRequestsAreNotSent(t *testing.T) {
	t.Parallel()
	nc := pair(t, func(context.Context, wire.Request, io.Writer, io.Writer) wire.Result {
		t.Error("was run")
		return wire.Result{}
	})
	for want, r := range map[string]wire.Request{
		"command is empty":                  {Cwd: "/"},
		"command must be UTF-8":             {Cwd: "/", Command: "echo \xff"},
		"command must be UTF-8 without NUL": {Cwd: "/", Command: "echo \x00"},
		"command has 122881 bytes":          {Cwd: "/", Command: strings.Repeat("x", wire.MaxCommand+1)},
		"cwd must be":                       {Command: "x", Cwd: "here"},
		"workspace must be":                 {Command: "x", Cwd: "/", Workspace: "here"},
		"exec must be":                      {Command: "x", Cwd: "/", Exec: "a.b"},
		"session must be":                   {Command: "x", Cwd: "/", Session: "*"},
		"call must be":                      {Command: "x", Cwd: "/", Call: "a\nb"},
		"timeout is negative":               {Command: "x", Cwd: "/", TimeoutMS: -1},
		"item must be 1":                    {Op: wire.Keep, Path: ".envrc"},
		"item must be":                      {Op: wire.Dismiss},
		"path must be a name":               {Op: wire.Expect, Item: "one", Path: ".vscode/tasks.json"},
		"path must be a name in":            {Op: wire.Expect},
	} {
		_, err := wire.Call(t.Context(), nc, subject, r, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestTheLargestCommandFits(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := pair(t, func(_ context.Context, r wire.Request, _, _ io.Writer) wire.Result {
		return wire.Result{DurationMS: int64(len(r.Command))}
	})
	r := wire.Request{Command: strings.Repeat("\x01", wire.MaxCommand), Cwd: "/"} // six bytes each in JSON
	result, err := wire.Call(t.Context(), nc, subject, r, io.Discard, io.Discard)
	is.NoErr(err)
	is.Equal(result.DurationMS, int64(wire.MaxCommand))
}

func TestStoppingServeCancelsAndSendsResults(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	server := serve(t, url, func(ctx context.Context, _ wire.Request, stdout, _ io.Writer) wire.Result {
		io.WriteString(stdout, "running")
		<-ctx.Done()
		return wire.Result{ExitCode: 1, Reason: wire.Cancelled}
	})
	nc := connect(t, url)
	running, stopped := make(chan bool, 1), make(chan error, 1)
	go func() {
		<-running
		server.stop()
		stopped <- <-server.ended
	}()
	result, err := wire.Call(t.Context(), nc, subject, hello, writer(func(p []byte) (int, error) {
		running <- true
		return len(p), nil
	}), io.Discard)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Cancelled)
	is.NoErr(<-stopped)
	_, err = wire.Call(t.Context(), nc, subject, hello, io.Discard, io.Discard)
	is.True(errors.Is(err, wire.ErrNoWorker))
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
