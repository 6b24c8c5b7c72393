package wire_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

const subject = "exec.run.test"

// TestMain lets the test binary also be a process that is killed or stopped: a server or a caller on its own.
func TestMain(m *testing.M) {
	if silence, err := time.ParseDuration(os.Getenv("WIRE_SILENCE")); err == nil {
		wire.SetSilence(silence)
	}
	switch os.Getenv("WIRE_ROLE") {
	case "":
		os.Exit(expect.Run(m))
	case "server":
		nc := must(nats.Connect(os.Getenv("WIRE_URL"), nats.Timeout(time.Minute)))
		go wire.Serve(context.Background(), nc, subject, wire.Server{Handle: ticking})
		for nc.NumSubscriptions() == 0 {
			time.Sleep(time.Millisecond)
		}
		nc.Flush()
		fmt.Println("ready")
		select {}
	case "caller":
		nc := must(nats.Connect(os.Getenv("WIRE_URL"), nats.Timeout(time.Minute)))
		result, err := wire.Call(context.Background(), nc, subject, wire.Request{Command: "tick", Cwd: "/"}, os.Stdout,
			os.Stderr)
		fmt.Println("end", result.Reason, result.ExitCode, err)
	}
}

// ticking writes a line every 10 ms, 100 times for the command "short" and until it is cancelled for others.
func ticking(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
	for i := 0; r.Command != "short" || i < 100; i++ {
		fmt.Fprintln(stdout, "tick", i)
		select {
		case <-ctx.Done():
			return wire.Result{ExitCode: 143, Reason: wire.Cancelled}
		case <-time.After(10 * time.Millisecond):
		}
	}
	return wire.Result{}
}

// process starts the test binary in a role. It returns after the first line of output; last gets the last line.
func process(t *testing.T, url, role string, env ...string) (cmd *exec.Cmd, last <-chan string) {
	t.Helper()
	is := is.New(t)
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "WIRE_ROLE="+role, "WIRE_URL="+url), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	is.NoErr(err)
	is.NoErr(cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	is.True(lines.Scan())
	lastLine := make(chan string, 1)
	go func() {
		line := ""
		for lines.Scan() {
			line = lines.Text()
		}
		lastLine <- line
	}()
	return cmd, lastLine
}

// natsServer is a server without accounts; ops/natsconf tests the protocol across the accounts that ship.
func natsServer(t testing.TB) (url string) {
	t.Helper()
	return startNATS(t).ClientURL()
}

func startNATS(t testing.TB) *server.Server {
	t.Helper()
	return startNATSWith(t, 0)
}

// startNATSAt starts a server at the port of an earlier one.
func startNATSAt(t testing.TB, port int) {
	t.Helper()
	startServer(t, &server.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true})
}

// startNATSWith starts a server with a maximum message size in bytes; 0 is the default.
func startNATSWith(t testing.TB, maxPayload int32) *server.Server {
	t.Helper()
	return startServer(t, &server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, MaxPayload: maxPayload})
}

func startServer(t testing.TB, o *server.Options) *server.Server {
	t.Helper()
	s := must(server.NewServer(o))
	go s.Start()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("no NATS server")
	}
	t.Cleanup(s.Shutdown)
	return s
}

func connect(t testing.TB, url string) *nats.Conn {
	t.Helper()
	nc := must(nats.Connect(url, nats.Timeout(time.Minute)))
	t.Cleanup(nc.Close)
	return nc
}

// testServer is a server on its own connection, until the test ends.
type testServer struct {
	nc    *nats.Conn
	stop  context.CancelFunc
	ended chan error // what Serve returned
}

func serveAs(t testing.TB, url string, c wire.Server) *testServer {
	t.Helper()
	return serveOn(t, connect(t, url), c)
}

func serveOn(t testing.TB, nc *nats.Conn, c wire.Server) *testServer {
	t.Helper()
	s := &testServer{nc: nc, ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	s.stop = cancel
	go func() { s.ended <- wire.Serve(ctx, s.nc, subject, c) }()
	expect.Eventually(t, "it becomes true", func() bool { return s.nc.NumSubscriptions() == 1 })
	if err := s.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return s
}

func serve(t testing.TB, url string, handle wire.Handler) *testServer {
	t.Helper()
	return serveAs(t, url, wire.Server{Handle: handle})
}

// pair returns a caller's connection to a server with the handler.
func pair(t testing.TB, handle wire.Handler) *nats.Conn {
	t.Helper()
	url := natsServer(t)
	serve(t, url, handle)
	return connect(t, url)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
