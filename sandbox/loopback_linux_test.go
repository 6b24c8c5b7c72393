package sandbox

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// sharing returns the level bwrap, at which commands share a network.
func sharing(t *testing.T) isolation.Choice {
	t.Helper()
	choice, err := choose[isolation.Bwrap]()
	if (err != nil || !choice.SharesLoopback) && os.Getenv("CI") == "" {
		t.Skip(choice, err)
	}
	if err != nil || !choice.SharesLoopback {
		t.Fatal(choice, err)
	}
	return choice
}

// TestSharedLoopbackWorksForAnotherUser runs tests in a process without tests of the level container. They hide the
// files of the process in /proc, which nsenter opens.
func TestSharedLoopbackWorksForAnotherUser(t *testing.T) {
	sharing(t)
	t.Parallel()
	runAsAnotherUser(t, "TestLoopbackIsSharedByTheCommandsOfOneChat", "TestLoopbackShowsNoProcessesOfOtherCommands",
		"TestCommandsOfAChatShareAQuarterOfTheInotifyInstances")
}

func TestLoopbackIsSharedByTheCommandsOfOneChat(t *testing.T) {
	t.Parallel()
	choice := sharing(t)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.URL)
	}))
	t.Cleanup(proxy.Close)
	for name, network := range map[string]string{"without a network": "", "with a network": proxy.URL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			j := newTestWorker(t, choice, nil)
			port, stop := j.serveIn(t, "chat1", network)
			from := func(chat, network string) string {
				r := j.request(fmt.Sprintf("%s %s 'tcp 127.0.0.1:%d'", j.program, attemptName, port))
				r.Loopback, j.network = chat, network
				return j.tryAs(r)[0]
			}
			other := proxy.URL
			if network != "" {
				other = ""
			}
			is.Equal(from("chat1", network), "ok")           // the next command of the chat
			is.Equal(from("chat2", network), "ECONNREFUSED") // a command of another chat
			is.Equal(from("", network), "ECONNREFUSED")      // a command of no chat
			is.Equal(from("chat1", other), "ECONNREFUSED")   // a command of the chat with other access to the network
			if network != "" {                               // each command of the chat has its own proxy
				r := j.request(fmt.Sprintf("%s %s 'fetch http://example.org/page'", j.program, attemptName))
				r.Loopback, j.network = "chat1", network
				is.Equal(j.tryAs(r), []string{"200 OK: http://example.org/page"})
			}
			stop()
			is.Equal(from("chat1", network), "ECONNREFUSED") // the server has ended
		})
	}
}

// The proxy tells the commands of a chat apart by their credentials.
func TestLoopbackGivesParallelCommandsTheirOwnProxies(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		credentials, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.Header.Get("Proxy-Authorization"), "Basic "))
		fmt.Fprintf(w, "%s for %s", credentials, r.URL)
	}))
	t.Cleanup(proxy.Close)
	j := newTestWorker(t, sharing(t), nil)
	const commands = 4
	var all sync.WaitGroup
	outputs := make([]bytes.Buffer, commands)
	for i := range commands {
		// all of them run when the first one connects; the others run on when it has ended
		r := j.request(fmt.Sprintf("touch up%d; until [ -e up0 -a -e up1 -a -e up2 -a -e up3 ]; do sleep 0.01; done; "+
			"until [ %[1]d = 0 -o -e done$((%[1]d - 1)) ]; do sleep 0.01; done; "+
			"%[2]s %[3]s 'fetch http://example.org/%[1]d'; touch done%[1]d", i, j.program, attemptName))
		r.Loopback = "chat1"
		r.Network = strings.Replace(proxy.URL, "http://", fmt.Sprintf("http://exec%d:token@", i), 1)
		all.Go(func() { j.Exec(t.Context(), r, &outputs[i], &outputs[i]) })
	}
	all.Wait()
	for i := range commands {
		is.Equal(strings.TrimSpace(outputs[i].String()), fmt.Sprintf("200 OK: exec%d:token for http://example.org/%[1]d", i))
	}
}

// serveIn starts a server in a background command of a chat. stop ends it.
func (j *testWorker) serveIn(t *testing.T, chat, network string) (port int, stop func()) {
	t.Helper()
	is := is.New(t)
	r := j.request(fmt.Sprintf("%s %s 'serve 127.0.0.1:0'", j.program, attemptName))
	r.Ports, r.Loopback, r.Network = true, chat, network
	out, done := newLines(), make(chan wire.Result, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- j.Exec(ctx, r, out, io.Discard) }()
	port, err := strconv.Atoi(out.next(t))
	is.NoErr(err)
	return port, func() {
		cancel()
		is.Equal((<-done).Reason, wire.Cancelled)
	}
}

func TestLoopbackShowsNoProcessesOfOtherCommands(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	j := newTestWorker(t, sharing(t), nil)
	_, stop := j.serveIn(t, "chat1", "")
	defer stop()
	var out bytes.Buffer
	r := j.request("cat /proc/[0-9]*/comm; unshare -Un true || echo no namespace; " +
		"ip address add 10.9.9.9/32 dev lo || echo no address")
	r.Loopback = "chat1"
	is.Equal(j.Exec(t.Context(), r, &out, io.Discard).ExitCode, 0)
	expect.Lacks(t, out.String(), "attempt")
	expect.Contains(t, out.String(), "no namespace")
	expect.Contains(t, out.String(), "no address")
}

func TestCommandsOfAChatShareAQuarterOfTheInotifyInstances(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	j := newTestWorker(t, sharing(t), nil)
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	is.NoErr(err)
	all, err := strconv.Atoi(strings.TrimSpace(string(text)))
	is.NoErr(err)
	allowed := func(line string) (n int) { // to this command; others of the user may need the rest
		t.Helper()
		_, err := fmt.Sscanf(line, "%d EMFILE", &n)
		is.NoErr(err)
		return n
	}
	next := j.request(j.program + " " + attemptName + " inotify")
	keep := j.request(j.program + " " + attemptName + " 'inotify\nwait never'")
	next.Loopback, keep.Loopback = "chat1", "chat1"
	out, done := newLines(), make(chan wire.Result, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- j.Exec(ctx, keep, out, io.Discard) }()
	n := allowed(out.next(t))
	is.True(n > 0 && n <= all/4)
	is.Equal(allowed(j.tryAs(next)[0]), 0)
	cancel()
	is.Equal((<-done).Reason, wire.Cancelled)
	is.True(allowed(j.tryAs(next)[0]) > 0)
}

func TestLoopbackIsDroppedWhenNoCommandUsesIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	j := newTestWorker(t, sharing(t), nil)
	j.loopbacks.idle = time.Nanosecond
	key := loopbackKey{group: "chat1"}
	_, stop := j.serveIn(t, "chat1", "")
	is.Equal(j.loopbacks.commandsOf(key), 1)
	stop()
	expect.Eventually(t, "the network is dropped", func() bool { return j.loopbacks.commandsOf(key) == -1 })
	j.loopbacks.idle = time.Hour
	for i := range maxIdleLoopbacks + 8 {
		_, release, err := j.loopbacks.join(wire.Request{Loopback: fmt.Sprintf("chat%d", i)})
		is.NoErr(err)
		release()
	}
	is.Equal(len(j.loopbacks.byKey), maxIdleLoopbacks)
}

// commandsOf returns the number of commands that use a network; -1 if there is none.
func (l *loopbacks) commandsOf(key loopbackKey) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.byKey[key]; s != nil {
		return s.commands
	}
	return -1
}
