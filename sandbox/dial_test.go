package sandbox

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/sandbox/wire"
)

// serving is a command that may serve ports, and a port where something of its network answers: with none of the walls,
// the machine's own.
func serving(t *testing.T, w *Worker, answer func(net.Conn)) (exec string, port int) {
	t.Helper()
	is := is.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answer(c)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan wire.Result, 1)
	out := newLines()
	r := w.request("echo ready; sleep 600")
	r.Ports = true
	go func() { ended <- w.Exec(ctx, r, out, io.Discard) }()
	is.Equal(out.next(t), "ready")
	t.Cleanup(func() { cancel(); <-ended })
	return r.Exec, l.Addr().(*net.TCPAddr).Port
}

func TestADialedPortGivesWhatItIsAskedFor(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	exec, port := serving(t, w, func(c net.Conn) {
		defer c.Close()
		all, _ := io.ReadAll(c) // up to the end of what is said
		c.Write(bytes.ToUpper(all))
	})
	input := make(chan wire.Input)
	go func() {
		defer close(input)
		for range 100 {
			input <- wire.Input{Data: bytes.Repeat([]byte("abcd"), 8000)}
		}
	}()
	var out, says bytes.Buffer
	result := w.Handle(t.Context(), wire.Request{Op: wire.Dial, Exec: exec, Port: port, Input: input}, &out, &says)
	is.Equal(says.String(), wire.Connected)
	is.Equal(result.Reason, wire.Exited)
	is.True(bytes.Equal(out.Bytes(), bytes.Repeat([]byte("ABCD"), 800000)))
}

func TestADialEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	closed := make(chan error, 1)
	exec, port := serving(t, w, func(c net.Conn) {
		c.Write([]byte("hello"))
		_, err := c.Read(make([]byte, 1))
		closed <- err
	})
	ctx, cancel := context.WithCancel(t.Context())
	out := make(firstWrite, 1)
	go func() {
		<-out
		cancel()
	}()
	result := w.Handle(ctx, wire.Request{Op: wire.Dial, Exec: exec, Port: port, Input: make(chan wire.Input)}, out, io.Discard)
	is.Equal(result.Reason, wire.Cancelled)
	is.True(<-closed != nil)
}

type firstWrite chan bool

func (f firstWrite) Write(p []byte) (int, error) {
	f <- true
	return len(p), nil
}

func TestNobodyListeningIsARefusal(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	exec, _ := serving(t, w, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	l.Close()
	var says bytes.Buffer
	result := w.Handle(t.Context(), wire.Request{Op: wire.Dial, Exec: exec, Port: l.Addr().(*net.TCPAddr).Port}, io.Discard, &says)
	is.Equal(result.Reason, wire.Refused)
	is.Equal(says.Len(), 0)
}
