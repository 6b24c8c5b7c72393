package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/sandbox/wire"
)

// serverVariable makes the test binary a server: on a port that it prints, it says hello to each connection, reads all
// that is said, answers in capitals, and prints "closed".
const serverVariable = "SANDBOX_TEST_SERVER"

func init() {
	if os.Getenv(serverVariable) != "" {
		serve()
	}
}

func serve() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer fmt.Println("closed")
			defer c.Close()
			io.WriteString(c, "hello ")
			all, _ := io.ReadAll(c)
			c.Write(bytes.ToUpper(all))
		}()
	}
}

// startServer runs a command that may serve ports until the test ends. It returns the first line of output, and the
// others.
func startServer(t *testing.T, w *Worker, command string) (exec, line string, rest *lines) {
	t.Helper()
	r, out := w.request(command), newLines()
	r.Ports = true
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan wire.Result, 1)
	go func() { ended <- w.Exec(ctx, r, out, io.Discard) }()
	t.Cleanup(func() { cancel(); <-ended })
	return r.Exec, out.next(t), out
}

// serving starts the server, and returns its port and the later output.
func serving(t *testing.T, w *Worker) (exec string, port int, printed *lines) {
	t.Helper()
	exec, line, printed := startServer(t, w, serverVariable+"=1 exec "+os.Args[0])
	port, err := strconv.Atoi(line)
	is.New(t).NoErr(err)
	return exec, port, printed
}

// ask dials and sends nothing.
func (w *Worker) ask(t *testing.T, exec string, port int) (answer, refusal string) {
	input := make(chan wire.Input)
	close(input)
	var out bytes.Buffer
	result := w.Handle(t.Context(), wire.Request{Op: wire.Dial, Exec: exec, Port: port, Input: input}, &out, io.Discard)
	return out.String(), result.Error
}

func TestDialConnectsToAPort(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	exec, port, _ := serving(t, w)
	input := make(chan wire.Input)
	go func() {
		defer close(input)
		for range 100 {
			input <- wire.Input{Data: bytes.Repeat([]byte("abcd"), 8000)}
		}
	}()
	var out, want bytes.Buffer
	result := w.Handle(t.Context(), wire.Request{Op: wire.Dial, Exec: exec, Port: port, Input: input}, &out, &want)
	is.Equal(want.String(), wire.Connected)
	is.Equal(result.Reason, wire.Exited)
	is.True(bytes.Equal(out.Bytes(), append([]byte("hello "), bytes.Repeat([]byte("ABCD"), 800000)...)))
}

func TestDialEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	exec, port, printed := serving(t, w)
	ctx, cancel := context.WithCancel(t.Context())
	out := make(firstWrite, 1)
	go func() {
		<-out
		cancel()
	}()
	result := w.Handle(ctx, wire.Request{Op: wire.Dial, Exec: exec, Port: port, Input: make(chan wire.Input)}, out,
		io.Discard)
	is.Equal(result.Reason, wire.Cancelled)
	is.Equal(printed.next(t), "closed")
}

type firstWrite chan bool

func (f firstWrite) Write(p []byte) (int, error) {
	f <- true
	return len(p), nil
}

func TestDialWithoutAListenerIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	exec, _, _ := serving(t, w)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	l.Close()
	var want bytes.Buffer
	result := w.Handle(t.Context(), wire.Request{Op: wire.Dial, Exec: exec, Port: l.Addr().(*net.TCPAddr).Port},
		io.Discard, &want)
	is.Equal(result.Reason, wire.Refused)
	is.Equal(want.Len(), 0)
}

func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	exec, port, _ := serving(t, w)
	for range maxConnections {
		_, err := w.addConnection(exec)
		is.NoErr(err)
	}
	_, refusal := w.ask(t, exec, port)
	is.True(strings.HasSuffix(refusal, "of exec "+exec+": it has 64 connections open already"))
	w.removeConnection(w.serving[exec])
	for range 2 { // the end of the first allows the second
		answer, refusal := w.ask(t, exec, port)
		is.Equal(refusal, "")
		is.Equal(answer, "hello ")
	}
	for w.dials < maxWorkerConnections {
		other, _, _ := serving(t, w)
		for range maxConnections {
			w.addConnection(other)
		}
	}
	other, port, _ := serving(t, w)
	_, refusal = w.ask(t, other, port)
	is.True(strings.HasSuffix(refusal, ": the worker has 256 connections open already"))
}
