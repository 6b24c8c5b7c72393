package exec

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"

	"github.com/nats-io/nats.go"

	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// TestMain lets the test binary also be a sandbox worker that is killed, and a server that a command starts.
func TestMain(m *testing.M) {
	if greeting := os.Getenv("HANDLERS_TEST_GREET"); greeting != "" {
		fmt.Fprintln(os.Stderr, greet(greeting))
		os.Exit(1)
	}
	if url := os.Getenv("HANDLERS_TEST_WORKER"); url != "" {
		fmt.Fprintln(os.Stderr, serveWorker(url, os.Getenv("HANDLERS_TEST_KEYS"), os.Getenv("HANDLERS_TEST_WORKSPACE")))
		os.Exit(1)
	}
	os.Exit(expect.Run(m))
}

func serveWorker(url, keys, workspace string) error {
	k, err := natsconf.LoadKeys(keys)
	if err != nil {
		return err
	}
	opts, err := k.Options(natsconf.Worker, "worker")
	if err != nil {
		return err
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return err
	}
	w, err := sandbox.Open(sandbox.Config{Isolation: isolation.Choice{Level: isolation.None}, Workspace: workspace,
		Home: workspace, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return wire.Serve(context.Background(), nc, wire.RunSubject("local"), wire.Server{Handle: w.Exec})
}

// greet serves on a free port, and prints the port. It writes the greeting to each connection, and echoes its input.
func greet(greeting string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			fmt.Fprintln(c, greeting)
			io.Copy(c, c)
		}()
	}
}
