package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/netrelay"
	"pocketcoder/sandbox/proc"
	"pocketcoder/sandbox/wire"
)

// TestMain makes the test binary a worker process if its arguments name a workspace: it runs one command until it is
// killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == attemptName {
		attempt(os.Args[2])
		return
	}
	if len(os.Args) > 2 && os.Args[1] == netrelay.Name {
		os.Exit(netrelay.Run(os.Args[2:], os.Stderr))
	}
	workspace := os.Getenv("SANDBOX_TEST_WORKSPACE")
	if workspace == "" {
		state, err := os.MkdirTemp("/var/tmp", "pocketcoder-state-") // for workers without a directory for the quarantine
		if err != nil {
			panic(err)
		}
		os.Setenv("XDG_STATE_HOME", state)
		code := expect.Run(m)
		os.RemoveAll(state)
		removeAttempt()
		endVictim()
		os.Exit(code)
	}
	choice, err := isolation.Choose(cmp.Or(os.Getenv("SANDBOX_TEST_ISOLATION"), string(isolation.None)))
	if err != nil {
		panic(err)
	}
	w, err := Open(Config{Isolation: choice, Workspace: workspace, Home: workspace})
	if err != nil {
		panic(err)
	}
	r := w.request(os.Getenv("SANDBOX_TEST_COMMAND"))
	r.Loopback = "chat1"
	w.Exec(context.Background(), r, os.Stdout, os.Stderr)
}

// background runs a command that prints n pids, one per line, and returns them while the command runs. It checks that
// each process was alive.
func background(t *testing.T, ctx context.Context, w *Worker, r wire.Request,
	n int) (pids []int, done <-chan wire.Result) {
	t.Helper()
	out, result := newLines(), make(chan wire.Result, 1)
	go func() { result <- w.Exec(ctx, r, out, io.Discard) }()
	return out.pids(t, n), result
}

func (l *lines) pids(t *testing.T, n int) (pids []int) {
	t.Helper()
	for range n {
		pid, err := strconv.Atoi(l.next(t))
		if err != nil {
			t.Fatal(err)
		}
		if !alive(pid) {
			t.Fatalf("process %d did not live", pid)
		}
		pids = append(pids, pid)
	}
	return pids
}

func alive(pid int) bool {
	state, _ := proc.State(pid)
	return state != "" && state != "Z"
}

// trees are the ways a process can leave its parent. Each prints the pid of every process that must die.
var trees = map[string]struct {
	command string
	n       int
}{
	"plain":                {`echo $$; exec sleep 600`, 1},
	"child":                {`echo $$; sleep 600 & echo $!; wait`, 2},
	"grandchildren":        {`echo $$; sh -c 'echo $$; sh -c "echo \$\$; sleep 600; :"; :'; :`, 3},
	"ignores SIGTERM":      {`trap '' TERM; echo $$; sh -c 'trap "" TERM; echo $$; sleep 600; :'; :`, 2},
	"stopped":              {`sleep 600 & echo $!; kill -STOP $!; echo $$; kill -STOP $$`, 2},
	"job control":          {`set -m; sleep 600 & echo $!; sleep 601 & echo $!; echo $$; wait`, 3},
	"own session":          {`echo $$; setsid sh -c 'echo $$; exec sleep 600' & wait`, 2},
	"own session, silent":  {`setsid sleep 600 >/dev/null 2>&1 & echo $!; exec sleep 600`, 1},
	"double fork":          {`(setsid sh -c 'sleep 600 & echo $!' &); sleep 600; :`, 1},
	"environment cleared":  {`env -i sh -c 'sleep 600 & echo $!; wait' & wait`, 1},
	"daemon, env cleared":  {`(env -i setsid sh -c 'sleep 600 >/dev/null 2>&1 & echo $!' &); sleep 600; :`, 1},
	"shell has exited":     {`(while read -r _ _ state _ </proc/$$/stat && [ "$state" != Z ]; do sleep 0.01; done; sleep 600 & echo $!; wait) &`, 1},
	"daemon holds stdout":  {`(env -i setsid sh -c 'sleep 600 & echo $!' &)`, 1},
	"stdout is not read":   {`sleep 600 & echo $!; exec yes >&2`, 1},
	"output closed":        {`echo $$; exec >&- 2>&-; exec sleep 600`, 1},
	"resource limit reset": {`ulimit -R 1000000; setsid sh -c 'sleep 600 & echo $!'; sleep 600; :`, 1},
}

func TestCancelKillsTheWholeTree(t *testing.T) {
	t.Parallel()
	for found, w := range map[string]*Worker{"by cgroup": open(t), "by label": withoutCgroups(open(t))} {
		others, _ := background(t, t.Context(), w,
			w.request(`echo $$; (setsid sh -c 'sleep 600 & echo $!' &); sleep 600; :`), 2)
		for name, tree := range trees {
			t.Run(name+", "+found, func(t *testing.T) {
				t.Parallel()
				is := is.New(t)
				ctx, cancel := context.WithCancel(t.Context())
				pids, done := background(t, ctx, w, w.request(tree.command), tree.n)
				cancel()
				select {
				case result := <-done:
					is.Equal(result.Reason, wire.Cancelled)
					if name == "plain" {
						is.Equal(result.ExitCode, 143)
						is.Equal(result.Signal, "SIGTERM")
					}
					if name == "ignores SIGTERM" {
						is.Equal(result.ExitCode, 137)
						is.Equal(result.Signal, "SIGKILL")
					}
					if name == "shell has exited" {
						is.Equal(result.ExitCode, 0)
					}
				case <-time.After(time.Minute):
					t.Fatal("cancelled command did not end")
				}
				for _, pid := range pids {
					is.True(!alive(pid))
				}
				for _, pid := range others {
					is.True(alive(pid)) // of another execution
				}
			})
		}
	}
}

func TestUnlabelledStrayDoesNotDelayTheResult(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := withoutCgroups(open(t))
	ctx, cancel := context.WithCancel(t.Context())
	pids, done := background(t, ctx, w, w.request(`ulimit -R 1000000; env -i setsid sh -c 'echo $$; exec sleep 600' & wait`), 1)
	t.Cleanup(func() { syscall.Kill(pids[0], syscall.SIGKILL) })
	cancel()
	select {
	case result := <-done:
		is.Equal(result.Reason, wire.Cancelled)
		is.True(alive(pids[0])) // else this proves nothing
	case <-time.After(time.Minute):
		t.Fatal("result did not come while the stray holds stdout")
	}
}

// withoutCgroups makes the worker find its processes by their labels alone, as where it may make no cgroups.
func withoutCgroups(w *Worker) *Worker {
	w.groups.Close()
	w.groups = nil
	return w
}

func TestTimeoutKillsTheWholeTree(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	r := w.request(`echo $$; setsid sh -c 'echo $$; exec sleep 600' & wait`)
	r.TimeoutMS = 5000    // long enough for both to start
	w.grace = time.Minute // and to end on a busy machine
	pids, done := background(t, t.Context(), w, r, 2)
	result := <-done
	is.Equal(result.Reason, wire.TimedOut)
	is.Equal(result.ExitCode, 143)
	is.Equal(result.Signal, "SIGTERM")
	is.True(result.DurationMS >= 5000)
	is.True(!alive(pids[0]) && !alive(pids[1]))
}

func TestDefaultTimeoutAppliesToRequestsWithoutOne(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w, err := Open(Config{Isolation: unprotected, Workspace: t.TempDir(), Home: t.TempDir(),
		Timeout: 200 * time.Millisecond})
	is.NoErr(err)
	t.Cleanup(w.Close)
	result, stdout, _ := run(t, w, "sleep 600; echo after")
	is.Equal(result.Reason, wire.TimedOut)
	is.Equal(stdout, "")
	r := w.request("sleep 0.4; echo after")
	r.TimeoutMS = 60_000
	var out bytes.Buffer
	is.Equal(w.Exec(t.Context(), r, &out, io.Discard).Reason, wire.Exited)
	is.Equal(out.String(), "after\n")
}

func TestCancelledCommandCanCleanUp(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	w.grace = time.Minute // even on a busy machine
	ctx, cancel := context.WithCancel(t.Context())
	// The process that cleans up outlives the shell and holds no output.
	r := w.request(`(trap 'sleep 0.2; echo cleaned > cleaned; exit' TERM; exec 3>&1 >/dev/null 2>&1; sh -c 'echo $PPID >&3'; exec 3>&-; while :; do sleep 0.01; done) & wait`)
	_, done := background(t, ctx, w, r, 1)
	cancel()
	is.Equal((<-done).Reason, wire.Cancelled)
	_, err := os.Stat(filepath.Join(w.workspace, "cleaned"))
	is.NoErr(err)
}

func TestBackgroundChildDelaysTheEndOnlyByItsOutput(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	result, stdout, _ := run(t, w, "(sleep 0.3; echo late) & echo first")
	is.Equal(stdout, "first\nlate\n")
	is.Equal(result.Reason, wire.Exited)
	is.True(result.DurationMS >= 300)

	result, stdout, _ = run(t, w, "setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $!")
	is.Equal(result.Reason, wire.Exited) // otherwise the test would have timed out
	pid, err := strconv.Atoi(strings.TrimSpace(stdout))
	is.NoErr(err)
	is.True(alive(pid)) // a daemon lives on
}

func TestCloseKillsDaemonsOfEndedCommands(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w, err := Open(Config{Isolation: unprotected, Workspace: t.TempDir(), Home: t.TempDir()})
	is.NoErr(err)
	_, stdout, _ := run(t, w, "setsid sleep 600 >/dev/null 2>&1 & echo $!; env -i setsid sleep 600 >/dev/null 2>&1 & echo $!")
	pids := strings.Fields(stdout)
	is.Equal(len(pids), 2)
	w.Close()
	for _, p := range pids {
		pid, err := strconv.Atoi(p)
		is.NoErr(err)
		is.True(!alive(pid))
	}
}

func TestEndedDaemonsAreReaped(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	_, stdout, _ := run(t, w, "setsid sleep 0.1 >/dev/null 2>&1 & echo $!")
	pid, err := strconv.Atoi(strings.TrimSpace(stdout))
	is.NoErr(err)
	expect.Eventually(t, "the zombie is gone", func() bool { state, _ := proc.State(pid); return state == "" })
}

func TestOpenKillsAllProcessesOfAKilledWorker(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	workspace := t.TempDir()
	live := open(t)
	others, _ := background(t, t.Context(), live, live.request(`echo $$; exec sleep 600`), 1)

	out := newLines()
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), "SANDBOX_TEST_WORKSPACE="+workspace,
		`SANDBOX_TEST_COMMAND=echo $$; sleep 600 & echo $!; setsid sh -c 'echo $$; exec sleep 600' & wait`)
	worker.Stdout = out
	is.NoErr(worker.Start())
	pids := out.pids(t, 3)
	second, err := Open(Config{Isolation: unprotected, Workspace: workspace, Home: t.TempDir()})
	is.NoErr(err)
	t.Cleanup(second.Close)
	for _, pid := range pids {
		is.True(alive(pid)) // the worker lives, so another's start leaves them alone
	}

	is.NoErr(worker.Process.Kill())
	_, err = worker.Process.Wait()
	is.NoErr(err)
	expect.Eventually(t, "the kernel kills the shell", func() bool { return !alive(pids[0]) })
	open(t)
	is.True(alive(pids[1]) && alive(pids[2])) // another workspace's start left them alone
	next, err := Open(Config{Isolation: unprotected, Workspace: workspace, Home: t.TempDir()})
	is.NoErr(err)
	t.Cleanup(next.Close)
	is.True(!alive(pids[1]) && !alive(pids[2]))
	is.True(alive(others[0]))
}
