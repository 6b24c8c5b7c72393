package wire_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

// echo writes its input to stdout.
func echo(_ context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
	for in := range r.Input {
		stdout.Write(in.Data)
		if in.Size != nil {
			fmt.Fprintf(stderr, "%dx%d ", in.Size.Rows, in.Size.Cols)
		}
		io.WriteString(stderr, in.Signal)
	}
	return wire.Result{}
}

func TestInputArrivesWholeAndInOrder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := pair(t, echo)
	data := make([]byte, 3<<20)
	rand.Read(data)
	input := make(chan wire.Input)
	go func() {
		defer close(input)
		for rest, n := data, 1; len(rest) > 0; n = n*3 + 1 {
			n = min(n, len(rest))
			input <- wire.Input{Data: rest[:n]}
			rest = rest[n:]
		}
		input <- wire.Input{}
		input <- wire.Input{Size: &wire.Terminal{Rows: 24, Cols: 80}, Signal: "SIGINT "}
		input <- wire.Input{Signal: "SIGTERM"}
	}()
	var out, errs bytes.Buffer
	r := hello
	r.Input = input
	result, err := wire.Call(t.Context(), nc, subject, r, &out, &errs)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Exited)
	is.True(bytes.Equal(out.Bytes(), data))
	is.Equal(errs.String(), "24x80 SIGINT SIGTERM")
}

func TestWithoutInputTheChannelIsClosed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.NoErr(<-call(t, pair(t, echo), hello))
}

// A person may type while the output of a command is not read.
func TestInputArrivesWhileOutputIsBlocked(t *testing.T) {
	t.Parallel()
	nc := pair(t, func(ctx context.Context, r wire.Request, stdout, _ io.Writer) wire.Result {
		go func() {
			for {
				if _, err := stdout.Write(make([]byte, wire.Window)); err != nil {
					return
				}
			}
		}()
		return wire.Result{ExitCode: len((<-r.Input).Signal)}
	})
	input, blocked, taken := make(chan wire.Input), make(chan struct{}), make(chan struct{})
	r := hello
	r.Input = input
	go func() {
		<-blocked
		input <- wire.Input{Signal: "SIGINT"}
		close(taken)
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := true
	go wire.Call(ctx, nc, subject, r, writer(func(p []byte) (int, error) {
		if first {
			first = false
			close(blocked)
			<-taken
		}
		return len(p), nil
	}), io.Discard)
	<-taken
}

func TestUnreadInputIsBoundedAndEndsWithTheCall(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	read, open, closed := make(chan struct{}), make(chan bool, 1), make(chan struct{})
	nc := pair(t, func(ctx context.Context, r wire.Request, _, _ io.Writer) wire.Result {
		<-read
		_, ok := <-r.Input
		open <- ok
		<-ctx.Done()
		for range r.Input {
		}
		close(closed)
		return wire.Result{Reason: wire.Cancelled}
	})
	input := make(chan wire.Input)
	var taken atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	inputEnded := make(chan struct{})
	go func() {
		defer close(inputEnded)
		for {
			select {
			case input <- wire.Input{Data: make([]byte, 100)}:
				taken.Add(100)
			case <-ctx.Done():
				return
			}
		}
	}()
	ended := make(chan wire.Reason, 1)
	go func() {
		r := hello
		r.Input = input
		result, _ := wire.Call(ctx, nc, subject, r, io.Discard, io.Discard)
		ended <- result.Reason
	}()
	expect.Eventually(t, "it becomes true", func() bool { // it does not grow further
		before := taken.Load()
		time.Sleep(100 * time.Millisecond)
		return before > 0 && before == taken.Load()
	})
	is.True(taken.Load() <= wire.InputWindow)
	close(read)
	is.True(<-open)
	cancel()
	<-closed
	is.Equal(<-ended, wire.Cancelled)
	<-inputEnded
}

// Input with a hole must not reach the command.
func TestInvalidInputLosesTheCommand(t *testing.T) {
	t.Parallel()
	for name, orders := range map[string][]string{
		"a hole":    {"1", "1", "3"},
		"no order":  {"1", ""},
		"too much":  strings.Fields(strings.Repeat("x ", 9)),
		"after end": {"1", "2", "end", "4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			nc := pair(t, func(ctx context.Context, r wire.Request, _, _ io.Writer) wire.Result {
				<-ctx.Done()
				return wire.Result{Reason: wire.Cancelled}
			})
			inbox, err := nc.SubscribeSync(nc.NewInbox())
			is.NoErr(err)
			_, err = nc.SubscribeSync(wire.CallerSubject(subject, "x1"))
			is.NoErr(err)
			is.NoErr(nc.PublishRequest(subject, inbox.Subject, []byte(`{"exec":"x1","input":true,"command":"x","cwd":"/"}`)))
			offer, err := inbox.NextMsg(time.Minute)
			is.NoErr(err)
			control := wire.ControlSubject(subject, "x1")
			grant := frame(control, "grant", "")
			grant.Header.Set("Exec-Offer", offer.Header.Get("Exec-Offer"))
			is.NoErr(nc.PublishMsg(grant))
			for i, order := range orders {
				f := frame(control, "stdin", "x")
				switch order {
				case "end":
					f.Header.Set("Exec-Frame", "end")
					order = fmt.Sprint(i + 1)
				case "x":
					f.Data, order = make([]byte, wire.ChunkSize), fmt.Sprint(i+1)
				}
				f.Header.Set("Exec-Order", order)
				is.NoErr(nc.PublishMsg(f))
			}
			is.Equal(finished(t, inbox).Reason, wire.Lost)
		})
	}
}

func TestStartedIsCalledOnceBeforeAnyOutput(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	serveAs(t, url, wire.Server{
		Info: wire.WorkerInfo{Name: "w1", Isolation: "bwrap"},
		Handle: func(_ context.Context, _ wire.Request, stdout, _ io.Writer) wire.Result {
			io.WriteString(stdout, "x")
			<-time.After(time.Second) // some probes long
			return wire.Result{}
		},
	})
	var received []string
	r := hello
	r.Started = func(s wire.Start) { received = append(received, s.Worker+" "+s.Isolation) }
	_, err := wire.Call(t.Context(), connect(t, url), subject, r, writer(func(p []byte) (int, error) {
		received = append(received, "output")
		return len(p), nil
	}), io.Discard)
	is.NoErr(err)
	is.Equal(received, []string{"w1 bwrap", "output"})
}
