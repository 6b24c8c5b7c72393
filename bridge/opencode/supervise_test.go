package opencode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/install"
	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
)

// newTestSupervisor runs a script in OpenCode's place: /bin/sh, given OpenCode's arguments, runs the file serve in its
// directory.
func newTestSupervisor(t *testing.T, dir, script string) *Supervisor {
	t.Helper()
	s := &Supervisor{
		Tools: install.Tools{OpenCode: "/bin/sh", Version: install.OpenCodeVersion, Ripgrep: "/usr/bin/rg"}, Dir: dir, Workspace: t.TempDir(), Shell: "/bin/sh", Isolation: unconfined,
		Logger: slog.New(slog.DiscardHandler), Started: func(Instance) { t.Error("a script was taken for OpenCode") },
	}
	expect.WriteFile(t, s.path("home", "serve"), script)
	return s
}

// unconfined runs scripts that write where the test looks, and processes that the test knows by the ids they print.
var unconfined = isolation.Choice{Level: isolation.None}

// runInBackground starts Run, and returns what cancels it and waits for its end.
func (s *Supervisor) runInBackground(t *testing.T) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return func() error { cancel(); return <-ended }
}

// writtenPID waits for a process id in a file.
func writtenPID(t *testing.T, path string) (pid int) {
	t.Helper()
	expect.Eventually(t, "a process id in "+path, func() bool {
		text := expect.ReadFile(t, path)
		pid, _ = strconv.Atoi(strings.TrimSpace(text))
		return pid > 1 && strings.HasSuffix(text, "\n")
	})
	return pid
}

func awaitProcessGone(t *testing.T, pid int) {
	t.Helper()
	expect.Eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return processID(pid) == "" })
}

// startSleep starts a process that ends with the test and counts as listening.
func startSleep(t *testing.T) *child {
	t.Helper()
	listens := &announcement{made: make(chan struct{})}
	close(listens.made)
	c := &child{cmd: exec.Command("sleep", "600"), listens: listens, exited: make(chan struct{}),
		prepared: &isolation.PreparedCommand{}}
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.cmd.Process.Kill(); <-c.exited })
	return c
}

func TestPauseBeforeARestartIsAtMostTenSeconds(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	pause := pauseAfter(0, false)
	is.Equal(pause, 500*time.Millisecond)
	for range 20 { // repeated crashes
		pause = pauseAfter(pause, false)
		is.True(pause <= 10*time.Second)
	}
	is.Equal(pauseAfter(pause, true), 500*time.Millisecond)
}

func TestExitBeforeReadyReportsTheLastLines(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newTestSupervisor(t, t.TempDir(), `echo "$@" >>starts; echo cannot open the database >&2; exit 3`)
	err := s.Run(t.Context())
	is.True(err != nil)
	is.True(strings.HasPrefix(err.Error(), "start opencode: it ended: exit status 3; its last lines:\n"))
	is.True(strings.HasSuffix(err.Error(), "cannot open the database"))
	starts := strings.Split(strings.TrimSpace(expect.ReadFile(t, s.path("home", "starts"))), "\n")
	is.Equal(len(starts), maxFirstStarts)
	is.True(strings.HasPrefix(starts[0], "--hostname 127.0.0.1 --port "))
	is.True(starts[0] != starts[1]) // another program may have the port: the next start uses another
	is.Equal(expect.ReadFile(t, s.path("pid")), "")
}

func TestMissingProgramIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newTestSupervisor(t, t.TempDir(), "")
	s.Tools.OpenCode = filepath.Join(t.TempDir(), "missing")
	err := s.Run(t.Context())
	is.True(errors.Is(err, fs.ErrNotExist))
	expect.Contains(t, err.Error(), s.Tools.OpenCode)
}

func TestCancelEndsAStartingOpenCode(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newTestSupervisor(t, t.TempDir(), "echo $$ >started; exec sleep 600")
	stop := s.runInBackground(t)
	pid := writtenPID(t, s.path("home", "started"))
	is.NoErr(stop())
	is.Equal(processID(pid), "")
	_, err := os.Stat(s.path("pid"))
	is.True(errors.Is(err, fs.ErrNotExist))
}

// An OpenCode that is asked to stop changes what waits.
func TestStopKillsTheWholeProcessGroup(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newTestSupervisor(t, t.TempDir(), "trap '>asked' TERM; sleep 600 & echo $! >child; echo $$ >started; while :; do wait; done")
	stop := s.runInBackground(t)
	pid, child := writtenPID(t, s.path("home", "started")), writtenPID(t, s.path("home", "child"))
	is.NoErr(stop())
	is.Equal(processID(pid), "")
	awaitProcessGone(t, child)
	_, err := os.Stat(s.path("home", "asked"))
	is.True(errors.Is(err, fs.ErrNotExist))
}

func TestStartWithoutAnAnswerTimesOut(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never answers
	is.NoErr(err)
	t.Cleanup(func() { silent.Close() })
	late := errors.New("not ready in time")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, late)
	defer cancel()
	err = newTestSupervisor(t, t.TempDir(), "").awaitReady(ctx, startSleep(t),
		client.New("http://"+silent.Addr().String(), ""))
	is.True(errors.Is(err, late))
	expect.Contains(t, err.Error(), "check opencode") // and the last request
}

// A process that runs and never listens is busy; one that sleeps is stuck.
func TestASlowStartThatIsBusyIsAwaited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	limits, logged := HealthLimits{Start: 1500 * time.Millisecond}, &expect.Buffer{}
	stuck := newTestSupervisor(t, t.TempDir(), "exec sleep 600")
	stuck.Limits = limits
	expect.Contains(t, stuck.Run(t.Context()).Error(), "and idle for 1.5s")

	busy := newTestSupervisor(t, t.TempDir(), "while :; do :; done")
	busy.Limits, busy.Logger = limits, slog.New(slog.NewTextHandler(logged, nil))
	stop := busy.runInBackground(t)
	expect.Eventually(t, "it waits longer", func() bool {
		return strings.Contains(logged.String(), `"OpenCode is still starting" waited=2s`)
	})
	is.NoErr(stop())
}

func TestUnansweredReadyRequestIsRepeated(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	requested := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case requested <- struct{}{}:
			<-r.Context().Done() // the first is never answered
		default:
			fmt.Fprintf(w, `{"healthy":true,"version":%q}`, install.OpenCodeVersion)
		}
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	is.NoErr(newTestSupervisor(t, t.TempDir(), "").awaitReady(ctx, startSleep(t), client.New(server.URL, "")))
}

func TestProgramOnThePortGetsNoRequest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newTestSupervisor(t, t.TempDir(), `n=$(($(cat n || echo 0) + 1)); echo "$4" >port; echo $n >n; until [ -e taken$n ]; do sleep 0.02; done; sleep 0.3; exit 1`)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	for n := range maxFirstStarts {
		expect.Eventually(t, "it has a port", func() bool {
			return expect.ReadFile(t, s.path("home", "n")) == fmt.Sprintln(n+1)
		})
		taken, err := net.Listen("tcp", "127.0.0.1:"+strings.TrimSpace(expect.ReadFile(t, s.path("home", "port"))))
		is.NoErr(err)
		stranger := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			t.Error("a stranger was asked for", r.URL)
			http.NotFound(w, r)
		}))
		stranger.Listener.Close()
		stranger.Listener = taken
		stranger.Start()
		defer stranger.Close()
		expect.WriteFile(t, s.path("home", fmt.Sprint("taken", n+1)), "")
	}
	is.True(errors.Is(<-ended, errEnded)) // each start uses another port
}

func TestAnnouncementPrintedInPiecesIsRead(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	a := &announcement{url: "http://127.0.0.1:40", made: make(chan struct{})}
	for i, piece := range []string{"a warning\nopencode server listening on http://127.0.0.1:4", "0", "1\n",
		"opencode server listening on http://127.0.0.1:40", "\n", "more\n"} {
		n, err := a.Write([]byte(piece))
		is.NoErr(err)
		is.Equal(n, len(piece))
		select {
		case <-a.made:
			is.True(i >= 4)
		default:
			is.True(i < 4)
		}
	}
	a = &announcement{url: "http://127.0.0.1:40", made: make(chan struct{})}
	fmt.Fprint(a, "listening on http://127.0.0.1:40\n"+strings.Repeat("x", 5000))
	is.True(isDone(a.made)) // also if more output follows
}

func TestAnswerOfAnotherVersionIsAnError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status     int
		body, want string
	}{
		"another version":  {200, `{"healthy":true,"version":"1.0.0"}`, "it is version 1.0.0, not " + install.OpenCodeVersion},
		"another password": {401, ``, "401"},
		"another program":  {404, `<html>`, "404"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := newTestSupervisor(t, t.TempDir(), "").awaitReady(ctx, startSleep(t), healthAnswers(t, c.status, c.body))
			is.True(err != nil)
			expect.Contains(t, err.Error(), c.want)
			is.NoErr(ctx.Err()) // the error is final: there is no retry
		})
	}
}

func TestVersionIsCheckedAndReported(t *testing.T) {
	t.Parallel()
	for version, reported := range map[string]string{install.OpenCodeVersion: "",
		"0.9.1": "/bin/sh is version 0.9.1; only " + install.OpenCodeVersion + " is known to work"} {
		t.Run(version, func(t *testing.T) {
			is := is.New(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s := newTestSupervisor(t, t.TempDir(), "")
			s.Tools.Version = ""
			var lines strings.Builder
			s.Logger = slog.New(slog.NewTextHandler(&lines, nil))
			is.NoErr(s.awaitReady(ctx, startSleep(t), healthAnswers(t, 200, `{"healthy":true,"version":"`+version+`"}`)))
			is.Equal(s.Tools.Version, version)
			expect.Contains(t, lines.String(), reported)
			is.Equal(lines.String() == "", reported == "")
			err := s.awaitReady(ctx, startSleep(t), healthAnswers(t, 200, `{"healthy":true,"version":"1.0.0"}`))
			// a later start has the same version
			is.True(err != nil && strings.Contains(err.Error(), "it is version 1.0.0, not "+version))
		})
	}
}

func TestLeftOverOpenCodeIsKilled(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newTestSupervisor(t, t.TempDir(), "exit 3")
	left := startSleep(t)
	is.NoErr(writePID(s.path("pid"), left.cmd.Process.Pid))
	is.True(s.Run(t.Context()) != nil)
	select {
	case <-left.exited:
	case <-time.After(time.Minute):
		t.Fatal("it runs on")
	}
	is.Equal(expect.ReadFile(t, s.path("pid")), "")
}

func TestUnrelatedProcessIsNotKilled(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	other := startSleep(t)
	pid := other.cmd.Process.Pid
	path := filepath.Join(t.TempDir(), "pid")
	for _, content := range []string{
		fmt.Sprintf(`{"pid":%d,"id":"of an earlier process with this pid"}`, pid), fmt.Sprintf(`{"pid":%d,"id":""}`, pid),
		fmt.Sprintf(`{"pid":%d,"i`, pid), `{"pid":-1,"id":"x"}`, `{"pid":0,"id":"x"}`, "",
	} {
		expect.WriteFile(t, path, content)
		is.NoErr(killLeftOver(path))
		_, err := os.Stat(path)
		is.True(errors.Is(err, fs.ErrNotExist))
	}
	is.NoErr(killLeftOver(path)) // no file at all
	is.True(processID(pid) != "")
}

func TestDirectoryHasOneSupervisor(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	first := newTestSupervisor(t, t.TempDir(), "echo $$ >started; exec sleep 600")
	stop := first.runInBackground(t)
	pid := writtenPID(t, first.path("home", "started"))
	var output expect.Buffer
	second := newTestSupervisor(t, first.Dir, "echo $$ >started; exec sleep 600")
	second.Logger = slog.New(slog.NewTextHandler(&output, nil))
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- second.Run(ctx) }()
	expect.Eventually(t, "the second one waits", func() bool {
		return strings.Contains(output.String(), "in use by another process")
	})
	is.Equal(writtenPID(t, first.path("home", "started")), pid)
	is.True(processID(pid) != "") // and the first one continues
	is.NoErr(stop())
	expect.Eventually(t, "the second one starts", func() bool {
		return writtenPID(t, first.path("home", "started")) != pid
	})
	cancel()
	is.NoErr(<-ended)
}

// TestKilledSupervisorDoesNotBlockTheNextStart runs itself as the process that is killed.
func TestKilledSupervisorDoesNotBlockTheNextStart(t *testing.T) {
	const variable = "POCKETCODER_TEST_DIR"
	if dir := os.Getenv(variable); dir != "" {
		newTestSupervisor(t, dir, "echo $$ >started; exec sleep 600").Run(t.Context())
		return
	}
	t.Parallel()
	is := is.New(t)
	dir := t.TempDir()
	process := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	process.Env = append(os.Environ(), variable+"="+dir)
	is.NoErr(process.Start())
	t.Cleanup(func() { process.Process.Kill() })
	pid := writtenPID(t, filepath.Join(dir, "home", "started"))
	expect.Eventually(t, "it is remembered", func() bool {
		return strings.Contains(expect.ReadFile(t, filepath.Join(dir, "pid")), `"pid":`+strconv.Itoa(pid))
	})
	is.NoErr(process.Process.Kill())
	process.Wait()
	if runtime.GOOS == "linux" {
		awaitProcessGone(t, pid) // it ended with its parent
	}
	err := newTestSupervisor(t, dir, "exit 3").Run(t.Context())
	is.True(errors.Is(err, errEnded)) // it could start OpenCode
	is.Equal(processID(pid), "")
}

// healthAnswers returns a client of a server that answers every request alike.
func healthAnswers(t *testing.T, status int, body string) *client.Client {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return client.New(s.URL, "secret")
}
