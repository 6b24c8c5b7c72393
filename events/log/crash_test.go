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
)

const appenderDir = "EVENTS_TEST_APPENDER"

// TestMain lets the test binary also be a process that appends until it is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(appenderDir); dir != "" {
		fmt.Fprintln(os.Stderr, appendForever(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
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

func TestAcknowledgedEventsSurviveAKill(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := t.TempDir()
	acknowledged := 0
	for round := range 3 {
		child := exec.Command(os.Args[0])
		child.Env, child.Stderr = append(os.Environ(), appenderDir+"="+dir), os.Stderr
		out, err := child.StdoutPipe()
		is.NoErr(err)
		is.NoErr(child.Start())
		t.Cleanup(func() { child.Process.Kill() })
		// Every round appends what the last one did first, as reconcile does: no event is stored twice.
		seen := 0
		for lines := bufio.NewScanner(out); lines.Scan(); {
			is.Equal(lines.Text(), fmt.Sprint("evt_", seen))
			if seen++; seen == 80*(round+1) {
				is.NoErr(child.Process.Kill()) // read on: ids that it printed before it died count
			}
		}
		child.Wait()
		is.True(seen >= 80*(round+1))
		acknowledged = max(acknowledged, seen)
	}
	stored := read(t, eventstest.Open(t, eventstest.Conn(t, eventstest.Server(t, dir))), 0)
	is.True(len(stored) >= acknowledged)
	for i, e := range stored {
		is.NoErr(e.Malformed)
		is.Equal(e.ID, fmt.Sprint("evt_", i)) // none lost, none repeated, in order
	}
}
