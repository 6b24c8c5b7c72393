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

	"pocketcoder/sandbox/wire"
)

const subject = "exec.run.test"

// TestMain lets the test binary also be a process that is killed or stopped: a server or a caller on its own.
func TestMain(m *testing.M) {
	switch os.Getenv("WIRE_ROLE") {
	case "":
		os.Exit(m.Run())
	case "server":
		nc := must(nats.Connect(os.Getenv("WIRE_URL")))
		go wire.Serve(context.Background(), nc, subject, "workers", ticking)
		for nc.NumSubscriptions() == 0 {
			time.Sleep(time.Millisecond)
		}
		nc.Flush()
		fmt.Println("ready")
		select {}
	case "caller":
		nc := must(nats.Connect(os.Getenv("WIRE_URL")))
		result, err := wire.Call(context.Background(), nc, subject, wire.Request{Command: "tick", Cwd: "/"}, os.Stdout, os.Stderr)
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

// process starts the test binary in a role and returns when it has written its first line.
func process(t *testing.T, url, role string) *exec.Cmd {
	t.Helper()
	is := is.New(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "WIRE_ROLE="+role, "WIRE_URL="+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	is.NoErr(err)
	is.NoErr(cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	lines := bufio.NewReader(out)
	_, err = lines.ReadString('\n')
	is.NoErr(err)
	go io.Copy(io.Discard, lines)
	return cmd
}

// natsServer is a server without accounts; ops/natsconf tests the protocol across the accounts that ship.
func natsServer(t *testing.T) (url string) {
	t.Helper()
	return startNATS(t).ClientURL()
}

func startNATS(t *testing.T) *server.Server {
	t.Helper()
	s := must(server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true}))
	go s.Start()
	is.New(t).True(s.ReadyForConnections(10 * time.Second))
	t.Cleanup(s.Shutdown)
	return s
}

func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc := must(nats.Connect(url))
	t.Cleanup(nc.Close)
	return nc
}

// serve serves handle on its own connection until the test ends or stop is called, which returns Serve's error.
func serve(t *testing.T, url string, handle wire.Handler) (stop func() error) {
	t.Helper()
	nc := connect(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- wire.Serve(ctx, nc, subject, "workers", handle) }()
	eventually(t, func() bool { return nc.NumSubscriptions() == 1 })
	is.New(t).NoErr(nc.Flush())
	return func() error {
		cancel()
		return <-ended
	}
}

// pair is a caller's connection to a server with handle.
func pair(t *testing.T, handle wire.Handler) *nats.Conn {
	t.Helper()
	url := natsServer(t)
	serve(t, url, handle)
	return connect(t, url)
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("did not become true within 20 s")
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
