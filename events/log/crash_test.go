package log_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
)

const appenderDir = "EVENTS_TEST_APPENDER"

// TestMain lets the test binary also be a process that appends until it is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(appenderDir); dir != "" {
		fmt.Fprintln(os.Stderr, appendForever(dir))
		os.Exit(1)
	}
	os.Exit(expect.Run(m))
}

// appendForever appends one by one, in batches and with large bodies, and prints the id of each event once it is
// acknowledged.
func appendForever(dir string) error {
	s, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: dir, SyncAlways: true,
		NoSigs: true, NoLog: true})
	if err != nil {
		return err
	}
	s.Start()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		return err
	}
	ctx := context.Background()
	l, err := log.Open(ctx, nc, log.DefaultOptions, secret.Redactor{})
	if err != nil {
		return err
	}
	for n := 0; ; {
		var all []events.Event
		for range 1 + n%7 {
			body, _ := json.Marshal(strings.Repeat("x", 50+(n%11)/10*(300<<10))) // every eleventh is a blob
			e, err := events.NewOpenCode("chat1", "local", fmt.Sprint("evt_", n), int64(n),
				events.OpenCode{Type: "session.updated", Properties: body})
			if err != nil {
				return err
			}
			all = append(all, e)
			n++
		}
		if _, err := l.AppendAll(ctx, all); err != nil {
			return err
		}
		for _, e := range all {
			fmt.Println(e.ID)
		}
	}
}

// appender is a process that appends.
type appender struct {
	*exec.Cmd
	t    *testing.T
	ids  *bufio.Scanner // of acknowledged events
	seen int
}

func startAppender(t *testing.T, dir string) *appender {
	t.Helper()
	is := is.New(t)
	a := &appender{Cmd: exec.Command(os.Args[0]), t: t}
	a.Env, a.Stderr = append(os.Environ(), appenderDir+"="+dir), os.Stderr
	out, err := a.StdoutPipe()
	is.NoErr(err)
	is.NoErr(a.Start())
	t.Cleanup(func() { a.Process.Kill() })
	a.ids = bufio.NewScanner(out)
	return a
}

// read reads n acknowledgements, or all if n is 0. Every process appends what the last one did first, as a comparison
// with OpenCode does.
func (a *appender) read(n int) {
	a.t.Helper()
	for a.seen < n || n == 0 {
		if !a.ids.Scan() {
			break
		}
		is.New(a.t).Equal(a.ids.Text(), fmt.Sprint("evt_", a.seen))
		a.seen++
	}
	is.New(a.t).True(a.seen >= n)
}

// kill kills the process and reads what it had printed.
func (a *appender) kill() {
	a.t.Helper()
	is.New(a.t).NoErr(a.Process.Kill())
	a.read(0)
	a.Wait()
}

// checkStored checks that a log holds at least so many events, none repeated, in order. It returns how many of the
// acknowledged ones are there.
func checkStored(t *testing.T, dir string, acknowledged int) (found int) {
	t.Helper()
	is := is.New(t)
	for i, e := range read(t, eventstest.Open(t, eventstest.Conn(t, eventstest.Server(t, dir))), 0) {
		is.NoErr(e.Malformed)
		is.Equal(e.ID, fmt.Sprint("evt_", i))
		if i < acknowledged {
			found++
		}
	}
	is.Equal(found, acknowledged)
	return found
}

func TestAcknowledgedEventsSurviveAKill(t *testing.T) {
	t.Parallel()
	fault := expect.CountFault(t, "events acknowledged", "of them found once")
	dir, acknowledged := t.TempDir(), 0
	for round := range 3 {
		a := startAppender(t, dir)
		a.read(80 * (round + 1))
		a.kill()
		acknowledged = max(acknowledged, a.seen)
		fault.Tried()
	}
	fault.Saw(acknowledged, checkStored(t, dir, acknowledged))
}
