package wire_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

// testTimeout limits a test that would otherwise block forever.
const testTimeout = time.Minute

// Whatever a connection loses, a command ends complete or Lost. It does not hang.
func TestLostFramesAreRepeatedOrNoticed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind     string
		ofCaller bool
		times    int64 // frames of this kind that are lost
		want     wire.Reason
	}{
		"credit for output":      {"credit", true, 8, wire.Exited},
		"all credit for input":   {"credit", false, 1000, wire.Exited},
		"the last of the output": {"stderr", false, 1, wire.Lost},
		"some of the output":     {"stdout", false, 1, wire.Lost},
		"some of the input":      {"stdin", true, 1, wire.Lost},
		"the end of the input":   {"end", true, 1, wire.Lost},
		"that the command began": {"started", false, 1, wire.Exited},
		"nothing":                {"", false, 0, wire.Exited},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			nc := pair(t, func(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
				for in := range r.Input {
					stdout.Write(in.Data)
					if in.Size != nil {
						io.WriteString(stderr, "sized")
						if c.want == wire.Lost {
							<-ctx.Done() // the loss is noticed before the end
						}
					}
				}
				return wire.Result{}
			})
			m := newMangler(t, nc)
			var seen atomic.Int64
			m.copies = func(f *nats.Msg, ofCaller bool) int {
				if ofCaller == c.ofCaller && f.Header.Get("Exec-Frame") == c.kind && seen.Add(1) <= c.times {
					return 0
				}
				return 1
			}
			defer m.pass("x1")()
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			input := make(chan wire.Input)
			data := bytes.Repeat([]byte("all of it "), wire.Window/5) // more than any window
			go func() {
				defer close(input)
				for _, in := range []wire.Input{{Data: data}, {Size: &wire.Terminal{}}} {
					select {
					case input <- in:
					case <-ctx.Done():
					}
				}
			}()
			var out, errs bytes.Buffer
			result, err := wire.Call(ctx, nc, m.front, wire.Request{Command: "x", Cwd: "/", Exec: "x1", Input: input}, &out,
				&errs)
			is.NoErr(err)
			is.NoErr(ctx.Err())
			is.Equal(result.Reason, c.want)
			is.True(c.want == wire.Lost || bytes.Equal(out.Bytes(), data) && errs.String() == "sized")
		})
	}
}

// A cut connection loses messages in flight, and is back before the other side takes it for dead.
func TestAReconnectDoesNotStallACommand(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"caller", "server"} {
		t.Run(side, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			url := natsServer(t)
			l := newLink(t, url)
			nc := must(nats.Connect(l.url, nats.ReconnectWait(250*time.Millisecond), nats.MaxReconnects(-1)))
			t.Cleanup(nc.Close)
			caller, worker := nc, connect(t, url)
			if side == "server" {
				caller, worker = worker, caller
			}
			const size = 64 << 20
			serveOn(t, worker, wire.Server{Handle: func(_ context.Context, _ wire.Request, stdout, _ io.Writer) wire.Result {
				stdout.Write(make([]byte, size))
				return wire.Result{}
			}})
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			got := 0
			result, err := wire.Call(ctx, caller, subject, hello, writer(func(p []byte) (int, error) {
				if before := got; before < size/4 && before+len(p) >= size/4 {
					go l.cut()
				}
				got += len(p)
				return len(p), nil
			}), io.Discard)
			is.NoErr(err)
			is.NoErr(ctx.Err())
			is.True(result.Reason == wire.Lost || result.Reason == wire.Exited && got == size)
			t.Log(result.Reason, result.Error)
		})
	}
}

// The result is the last frame, so no later one shows that it was lost.
func TestALostResultIsRepeated(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]struct {
		kind  string
		times int64
	}{"result": {"finished", 2}, "receipt": {"received", 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			url := natsServer(t)
			serving := serve(t, url, echo)
			nc := connect(t, url)
			m := newMangler(t, nc)
			var seen atomic.Int64
			m.copies = func(f *nats.Msg, _ bool) int {
				if f.Header.Get("Exec-Frame") == lost.kind && seen.Add(1) <= lost.times {
					return 0
				}
				return 1
			}
			done := m.pass("x1")
			result, err := wire.Call(t.Context(), nc, m.front, wire.Request{Command: "x", Cwd: "/", Exec: "x1"}, io.Discard,
				io.Discard)
			done()
			is.NoErr(err)
			is.Equal(result.Reason, wire.Exited)
			expect.Eventually(t, "the server forgets the call", func() bool { return serving.nc.NumSubscriptions() == 1 })
		})
	}
}

// A connection that is cut while the result is on its way is back before a side takes the other for dead.
func TestAReconnectLosesNoResult(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"caller", "server"} {
		t.Run(side, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			url := natsServer(t)
			l := newLink(t, url)
			nc := must(nats.Connect(l.url, nats.ReconnectWait(250*time.Millisecond), nats.MaxReconnects(-1)))
			t.Cleanup(nc.Close)
			caller, worker := nc, connect(t, url)
			if side == "server" {
				caller, worker = worker, caller
			}
			serveOn(t, worker, wire.Server{Handle: func(context.Context, wire.Request, io.Writer, io.Writer) wire.Result {
				l.hold() // what is sent from now on is lost
				time.AfterFunc(time.Second, l.cut)
				return wire.Result{ExitCode: 7}
			}})
			result, err := wire.Call(t.Context(), caller, subject, hello, io.Discard, io.Discard)
			is.NoErr(err)
			is.Equal(result, wire.Result{ExitCode: 7})
		})
	}
}

func TestOutputThatCannotBeSentLosesTheCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := startNATSWith(t, wire.ChunkSize/2).ClientURL()
	serve(t, url, func(_ context.Context, _ wire.Request, stdout, _ io.Writer) wire.Result {
		stdout.Write(make([]byte, wire.ChunkSize))
		io.WriteString(stdout, "after a hole")
		return wire.Result{}
	})
	result, err := wire.Call(t.Context(), connect(t, url), subject, hello, io.Discard, io.Discard)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Lost)
	is.True(strings.HasPrefix(result.Error, "output could not be sent: "))
}

func TestInputThatCannotBeSentLosesTheCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := startNATSWith(t, wire.ChunkSize/2).ClientURL()
	serve(t, url, echo)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	r := hello
	input := make(chan wire.Input, 1)
	input <- wire.Input{Data: make([]byte, wire.ChunkSize)}
	close(input)
	r.Input = input
	result, err := wire.Call(ctx, connect(t, url), subject, r, io.Discard, io.Discard)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Lost)
	is.True(strings.HasPrefix(result.Error, "input could not be sent: "))
}

func TestTextOfAPeerIsSafeForATerminal(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for text, want := range map[string]string{
		"plain ü\n\x1b[31m":            "plain ü  [31m",
		"a\u202eb\u200fc\u2028d\u2029": "a b c d ",
		"\xff\xfea":                    "?a",
	} {
		is.Equal(wire.OneLine(text), want)
	}
	for _, long := range []string{strings.Repeat("\xff", 2000), strings.Repeat("ü\xff", 2000),
		strings.Repeat("\u202e", 2000), strings.Repeat("x", 2000)} {
		is.True(len(wire.OneLine(long)) <= 1024)
	}
	is.Equal(len(wire.OneLine(strings.Repeat("x", 2000))), 1024)
}
