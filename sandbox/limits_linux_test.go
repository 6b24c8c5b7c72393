package sandbox

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/limit"
	"pocketcoder/sandbox/proc"
	"pocketcoder/sandbox/wire"
)

// limited runs a test with workers that have these limits. It is for what the worker counts and ends: without cgroups
// it finds processes by their labels, and at bwrap by cgroups where it can make some. At landlock a command has the
// same processes as at none.
func limited(t *testing.T, l limit.Limits, test func(t *testing.T, w *Worker)) {
	t.Helper()
	limitedAt(t, l, test, "none without cgroups", "bwrap")
}

// limitedAtAll is limited at each level, for what the kernel refuses to a command.
func limitedAtAll(t *testing.T, l limit.Limits, test func(t *testing.T, w *Worker)) {
	t.Helper()
	limitedAt(t, l, test, "none", "landlock", "bwrap")
}

func limitedAt(t *testing.T, l limit.Limits, test func(t *testing.T, w *Worker), names ...string) {
	t.Helper()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			level, _, without := strings.Cut(name, " ")
			choice := needLevel(t, isolation.Level(level))
			w, err := Open(Config{Workspace: t.TempDir(), Home: t.TempDir(), Isolation: choice, Limits: l,
				Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(w.Close)
			if without {
				withoutCgroups(w)
			}
			test(t, w)
		})
	}
}

// expectLimit runs a command that exceeds a limit. It checks the reason of its end and that no process is left.
func expectLimit(t *testing.T, w *Worker, command string, want wire.Reason) wire.Result {
	t.Helper()
	is := is.New(t)
	var stderr bytes.Buffer
	r := w.request(command)
	r.TimeoutMS = 60_000
	result := w.Exec(t.Context(), r, io.Discard, &stderr)
	if result.Reason != want {
		t.Fatalf("ended with %+v, want reason %q; stderr: %.500s", result, want, stderr.String())
	}
	is.True(result.ExitCode != 0)
	is.Equal(leftOf(w, r.Exec), nil)
	return result
}

// leftOf lists the live processes of a worker's command. It finds them by the environment or by the tag. A process with
// the worker's tag counts unless w.trees says that it belongs to another command.
func leftOf(w *Worker, exec string) (pids []int) {
	others := map[uint32]bool{}
	w.mu.Lock()
	for serial, t := range w.trees {
		others[serial] = t.exec != exec
	}
	w.mu.Unlock()
	for pid := range proc.All() {
		env := proc.Environ(pid)
		marked := proc.Variable(env, execMarker) == exec && proc.Variable(env, workerMarker) == w.id.marker
		var tag unix.Rlimit
		tagged := unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &tag) == nil && w.id.owns(tag.Cur) && !others[uint32(tag.Cur)]
		if alive(pid) && (marked || tagged) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// forkBomb is a fork bomb that ends by itself if nothing else ends it. It leaves processor time to other tests.
const forkBomb = `renice -n 19 -p $$ >/dev/null; end=$((EPOCHSECONDS + 8)); b() { ((EPOCHSECONDS < end)) && b | b & }; b; sleep 60`

func TestOnlyTheForkBombIsEnded(t *testing.T) {
	expect.Long(t, "uses much of the machine")
	daemons := strings.ReplaceAll(forkBomb, "b | b &", "(setsid bash -c : & b) & b &")
	limited(t, limit.Limits{Processes: 30}, func(t *testing.T, w *Worker) {
		for name, command := range map[string]string{
			"bomb":            forkBomb,
			"that hides":      "exec env -i bash -c '" + "trap \"\" TERM INT HUP; " + daemons + "'",
			"of many at once": "for i in $(seq 1000); do sleep 60 & done; wait",
		} {
			if w.groups != nil && name != "that hides" {
				continue // the cgroup has all processes, whatever they do
			}
			t.Run(name, func(t *testing.T) {
				is := is.New(t)
				out, done := newLines(), make(chan wire.Result, 1)
				other := w.request("echo ready; cd; until [ -e 'stop " + name + "' ]; do sleep 0.01; done; exit 7")
				go func() { done <- w.Exec(t.Context(), other, out, io.Discard) }()
				is.Equal(out.next(t), "ready")
				expectLimit(t, w, command, wire.Processes)
				result, _, _ := run(t, w, "cd; touch 'stop "+name+"'; exit 3")
				is.Equal(result.ExitCode, 3)   // the worker still works
				is.Equal((<-done).ExitCode, 7) // and the other command lives
			})
		}
	})
}

func TestLimitsApplyToDaemonsOfAnEndedCommand(t *testing.T) {
	expect.Long(t, "uses much of the machine")
	t.Parallel()
	for name, c := range map[string]struct {
		limits  limit.Limits // only one, because another could end the command instead
		command string
	}{
		"processes": {limit.Limits{Processes: 30}, forkBomb},
		"memory":    {limit.Limits{Memory: 32 << 20}, memoryHog},
		// no process lives for a second of processor time, after which the kernel would end it
		"cpu-time": {limit.Limits{CPUTime: soon}, "while :; do (for ((i = 0; i < 100000; i++)); do :; done); done"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			w := open(t)
			w.config.Limits = c.limits
			command := strings.ReplaceAll(c.command, "sleep 60", "sleep 600") // longer than Eventually waits
			r := w.request("setsid bash -c 'touch bombing; " + command + "' >/dev/null 2>&1 </dev/null &")
			is.Equal(w.Exec(t.Context(), r, io.Discard, io.Discard).Reason, wire.Exited)
			expect.Eventually(t, "it began", func() bool {
				_, err := os.Stat(filepath.Join(w.workspace, "bombing"))
				return err == nil
			})
			expect.Eventually(t, "it is over", func() bool { return len(leftOf(w, r.Exec)) == 0 })
			expect.Eventually(t, "and forgotten", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.trees) == 0 })
		})
	}
}

// memoryHog has 80 MiB of memory, which dd keeps until it has written them.
const memoryHog = "dd if=/dev/zero bs=80M count=1 status=none | sleep 60"

func TestMemoryHogIsEnded(t *testing.T) {
	expect.Long(t, "uses much of the machine")
	t.Parallel()
	limited(t, limit.Limits{Memory: 32 << 20}, func(t *testing.T, w *Worker) {
		t.Parallel()
		result := expectLimit(t, w, memoryHog, wire.Memory)
		is.New(t).Equal(result.Signal, "SIGKILL")
		// none of them takes it alone
		expectLimit(t, w, "for i in $(seq 8); do dd if=/dev/zero bs=8M count=1 status=none | sleep 60 & done; wait", wire.Memory)
	})
}

func TestSharedMemoryCountsOnce(t *testing.T) {
	expect.Long(t, "uses much of the machine")
	t.Parallel()
	limited(t, limit.Limits{Memory: 50 << 20}, func(t *testing.T, w *Worker) {
		t.Parallel()
		// Each child has all of its parent's memory, and none of its own.
		result, _, stderr := run(t, w, "a=$(head -c 8388608 /dev/zero | tr '\\0' x); for i in $(seq 10); do (sleep 1; :) & done; wait")
		if result.Reason != wire.Exited || result.ExitCode != 0 {
			t.Errorf("ended with %+v: %s", result, stderr)
		}
	})
}

func TestFileSizeIsLimited(t *testing.T) {
	t.Parallel()
	limited(t, limit.Limits{FileSize: 1 << 20}, func(t *testing.T, w *Worker) {
		t.Parallel()
		is := is.New(t)
		for _, command := range []string{
			"exec head -c 10G /dev/zero > large",
			"head -c 10G /dev/zero > large",
			"truncate -s 10G large",
			"bash -c 'while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done > large'",
		} {
			result := expectLimit(t, w, "cd; "+command, wire.FileSize)
			is.Equal(result.ExitCode, 128+int(unix.SIGXFSZ))
			info, err := os.Stat(filepath.Join(w.config.Home, "large"))
			is.NoErr(err)
			is.True(info.Size() <= 1<<20)
		}
		result, _, _ := run(t, w, "cd; truncate -s 1M large && rm large")
		is.Equal(result.Reason, wire.Exited)
		is.Equal(result.ExitCode, 0)
	})
}

// soon is a limit of processor time that only the worker applies: the kernel counts whole seconds of each process.
const soon = 300 * time.Millisecond

func TestProcessorTimeOfAllProcessesIsCounted(t *testing.T) {
	expect.Long(t, "uses much of the machine")
	t.Parallel()
	limited(t, limit.Limits{CPUTime: time.Second}, func(t *testing.T, w *Worker) {
		t.Parallel()
		expectLimit(t, w, "trap '' XCPU; while :; do :; done", wire.CPUTime) // the kernel ends it
		w.config.Limits.CPUTime = soon
		for _, command := range []string{
			"for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait",
			"mkdir ~/many; cd ~/many; i=0; while [ $i -lt 1000000 ]; do : > $i; i=$((i + 1)); done",
		} {
			expectLimit(t, w, command, wire.CPUTime)
		}
		result, _, _ := run(t, w, "sleep 0.5; exit 3")
		is.New(t).Equal(result.Reason, wire.Exited)
	})
}

func TestOpenFileLimitIsReported(t *testing.T) {
	expect.Long(t, "uses much of the machine")
	t.Parallel()
	limited(t, limit.Limits{OpenFiles: 100}, func(t *testing.T, w *Worker) {
		t.Parallel()
		is := is.New(t)
		const open = "for i in $(seq 200); do exec {fd}</dev/null || { sleep 1; exit 9; }; done"
		is.Equal(expectLimit(t, w, open, wire.OpenFiles).ExitCode, 9)
		expectLimit(t, w, "bash -c '"+open+"'", wire.OpenFiles)
		result, _, _ := run(t, w, strings.Replace(open, "200", "50", 1)+"; sleep 0.3; exit 9")
		is.Equal(result.Reason, wire.Exited)
		result, _, _ = run(t, w, strings.Replace(open, "exit 9", "exit 0", 1))
		is.Equal(result.Reason, wire.Exited) // the command tolerated the limit
	})
}

func TestLimitsAreInheritedAndCannotBeRaised(t *testing.T) {
	t.Parallel()
	l := limit.Limits{Processes: 300, FileSize: 1 << 30, CPUTime: 90 * time.Second, OpenFiles: 100}
	limitedAtAll(t, l, func(t *testing.T, w *Worker) {
		t.Parallel()
		is := is.New(t)
		_, stdout, _ := run(t, w, "sh -c 'ulimit -n; ulimit -f; ulimit -t; cat /proc/self/oom_score_adj'; ulimit -Hc")
		// blocks of 512 bytes; the kernel ends it before OpenCode; no core files
		is.Equal(stdout, "100\n2097152\n90\n1000\n0\n")
		if w.config.Isolation.Level != isolation.None { // where root may raise them
			_, stdout, _ = run(t, w, "ulimit -n 200 2>/dev/null || echo no; ulimit -f unlimited 2>/dev/null || echo no; ulimit -t 1000 2>/dev/null || echo no")
			is.Equal(stdout, "no\nno\nno\n")
		}
	})
}

// TestOutputWithoutNewlineUsesNoMemory runs alone: others' memory would be counted with it.
func TestOutputWithoutNewlineUsesNoMemory(t *testing.T) {
	is := is.New(t)
	w := open(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out := new(counting)
	r := w.request("head -c 64M /dev/zero")
	is.Equal(w.Exec(t.Context(), r, out, io.Discard).Reason, wire.Exited)
	runtime.ReadMemStats(&after)
	is.Equal(out.n, int64(64<<20))
	is.True(after.TotalAlloc-before.TotalAlloc < 16<<20)
}

type counting struct{ n int64 }

func (c *counting) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func TestCancelledIsolatedCommandCanCleanUp(t *testing.T) {
	t.Parallel()
	limited(t, limit.Limits{}, func(t *testing.T, w *Worker) {
		t.Parallel()
		is := is.New(t)
		w.grace = time.Minute // even on a busy machine
		ctx, cancel := context.WithCancel(t.Context())
		out, result := newLines(), make(chan wire.Result, 1)
		r := w.request(`trap 'sleep 0.2; echo cleaned > ~/cleaned; exit 5' TERM; echo ready; while :; do sleep 0.01; done`)
		go func() { result <- w.Exec(ctx, r, out, io.Discard) }()
		is.Equal(out.next(t), "ready")
		cancel()
		ended := <-result
		is.Equal(ended.Reason, wire.Cancelled)
		is.Equal(ended.ExitCode, 5)
		_, err := os.Stat(filepath.Join(w.config.Home, "cleaned"))
		is.NoErr(err)

		w.grace = wire.KillGrace
		ctx, cancel = context.WithCancel(t.Context())
		r = w.request(`trap '' TERM; (setsid sh -c 'trap "" TERM; echo daemon; sleep 600; :' &); while :; do sleep 0.01; done`)
		go func() { result <- w.Exec(ctx, r, out, io.Discard) }()
		is.Equal(out.next(t), "daemon")
		cancel()
		ended = <-result
		is.Equal(ended.Reason, wire.Cancelled)
		is.Equal(ended.Signal, "SIGKILL") // it would not end by itself
		is.Equal(leftOf(w, r.Exec), nil)

		w.grace = time.Minute
		ctx, cancel = context.WithCancel(t.Context())
		r = w.request("echo ready; exec sleep 600")
		go func() { result <- w.Exec(ctx, r, out, io.Discard) }()
		is.Equal(out.next(t), "ready")
		cancel()
		ended = <-result
		is.Equal(ended.Signal, "SIGTERM") // also if bubblewrap reports it as an exit code
		is.Equal(ended.ExitCode, 143)
	})
}
