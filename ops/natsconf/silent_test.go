package natsconf_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
)

// listenTo makes the test's program a worker that subscribes to a subject and does nothing more, until its stdin ends.
const listenTo = "NATSCONF_TEST_LISTEN_TO"

func TestMain(m *testing.M) {
	if subject := os.Getenv(listenTo); subject != "" {
		listen(subject)
		return
	}
	os.Exit(expect.Run(m))
}

func listen(subject string) {
	options, err := natsconf.Keys{Dir: os.Getenv("KEYS")}.Options(natsconf.Worker, subject)
	if err != nil {
		panic(err)
	}
	nc, err := nats.Connect(os.Getenv("URL"), options...)
	if err != nil {
		panic(err)
	}
	if _, err := nc.Subscribe(subject, func(*nats.Msg) {}); err != nil {
		panic(err)
	}
	if err := nc.Flush(); err != nil {
		panic(err)
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
}

// A process that is stopped looks like one whose machine lost its power: the connection stays, and nothing comes over
// it.
func TestASilentClientIsGoneSoonAndAShortStopIsForgiven(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n := start(t)
	core, _ := n.connect(natsconf.Core)
	const quiet, flooded, short = "exec.run.p1.quiet", "exec.run.p1.flooded", "exec.run.p1.short"
	processes := map[string]*os.Process{}
	for _, subject := range []string{quiet, flooded, short} {
		processes[subject] = listener(t, n, subject)
		is.NoErr(core.Publish(subject, nil))
	}
	before := connection(t, n, short)
	is.NoErr(processes[quiet].Signal(syscall.SIGSTOP))
	is.NoErr(processes[flooded].Signal(syscall.SIGSTOP))
	stopped := time.Now()
	megabyte := make([]byte, 1<<20)
	for range 64 { // the server is left with most of it, in a write that blocks for as long as write_deadline says
		is.NoErr(core.Publish(flooded, megabyte))
	}
	is.NoErr(processes[short].Signal(syscall.SIGSTOP))
	time.Sleep(4 * time.Second) // how long it is stopped
	is.NoErr(processes[short].Signal(syscall.SIGCONT))
	for _, subject := range []string{quiet, flooded} {
		for answered := true; answered; {
			_, err := core.Request(subject, nil, 100*time.Millisecond)
			answered = !errors.Is(err, nats.ErrNoResponders)
			if time.Since(stopped) > time.Minute { // 8 to 12 s where nothing else runs; what NATS does by itself takes minutes
				t.Fatalf("%s still has its subscription a minute after it went silent", subject)
			}
		}
		t.Logf("%s was gone after %s", subject, time.Since(stopped).Round(100*time.Millisecond))
	}
	is.Equal(connection(t, n, short), before) // never lost its connection
}

// listener starts a process that listens to a subject.
func listener(t *testing.T, n *testServer, subject string) *os.Process {
	t.Helper()
	is := is.New(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), listenTo+"="+subject, "KEYS="+n.keys.Dir, "URL="+n.ClientURL())
	stdin, err := cmd.StdinPipe()
	is.NoErr(err)
	stdout, err := cmd.StdoutPipe()
	is.NoErr(err)
	is.NoErr(cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGCONT)
		stdin.Close()
		cmd.Wait()
	})
	_, err = io.ReadFull(stdout, make([]byte, len("ready\n")))
	is.NoErr(err)
	return cmd.Process
}

// connection is the server's number of the connection with this name.
func connection(t *testing.T, n *testServer, name string) uint64 {
	t.Helper()
	all, err := n.Connz(&server.ConnzOptions{})
	is.New(t).NoErr(err)
	for _, c := range all.Conns {
		if c.Name == name {
			return c.Cid
		}
	}
	t.Fatalf("%s is not connected", name)
	return 0
}

func TestWhoConnectsSlowlyIsLetIn(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(testing.TB) *testServer{"embedded": start, "from a file": alone} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			v, err := begin(t).Varz(nil)
			is.NoErr(err)
			is.Equal(v.AuthTimeout, 10.0) // s
		})
	}
}
