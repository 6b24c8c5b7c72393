package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pocketcoder/bridge/opencode"
	"pocketcoder/cmd/app"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers/chat"
	execs "pocketcoder/handlers/exec"
	"pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// execBench is the exec path without OpenCode: the embedded server, the gate, and a worker in a process of its own.
type execBench struct {
	b         *testing.B
	socket    string // of pocketcoder-shell
	log       *log.Log
	workspace string

	mu    sync.Mutex
	calls int
}

const benchChat, benchSession = "bench", "ses_bench"

func openExecBench(b *testing.B, level isolation.Level) *execBench {
	b.Helper()
	d := datadir.Dir(b.TempDir())
	x := &execBench{b: b, socket: d.Path("opencode", "run", "shell.sock"), workspace: b.TempDir()}
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	x.must(err)
	connected, err := openNATSInstance(b.Context(), d, keys)
	x.must(err)
	b.Cleanup(connected.close)
	nc, url := connected.Conn, connected.server.ClientURL()
	log, err := log.Open(b.Context(), nc, log.DefaultOptions, secret.NewRedactor())
	x.must(err)
	x.log = log
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	gate := execs.Executions{Permissions: &permission.Permissions{Log: log}, Log: log, Conn: nc,
		Engine: chat.DefaultEngine, Pool: app.Pool, Logger: slog.Default(), Session: func(string) (permission.Session, bool) {
			return permission.Session{Chat: benchChat, Directory: x.workspace}, true
		}}
	running.Go(func() { _ = gate.Run(ctx) })
	listener, err := opencode.ListenForShells(x.socket)
	x.must(err)
	server := opencode.ShellServer{Listener: listener, Exec: gate.Exec, Logger: slog.Default()}
	running.Go(func() { _ = server.Serve(ctx) })
	worker := exec.Command(released(b), "worker", "--lifeline", "--nats", url, "--isolation", string(level),
		"--key", keys.SeedFile(natsconf.Worker), "--workspace", x.workspace)
	worker.Stderr = os.Stderr
	lifeline, err := worker.StdinPipe()
	x.must(err)
	x.must(worker.Start())
	b.Cleanup(func() { cancel(); running.Wait(); lifeline.Close(); worker.Wait() })
	expect.Eventually(b, "a worker answers", func() bool {
		workers, err := wire.Workers(b.Context(), nc, app.Pool)
		return err == nil && len(workers) == 1
	})
	return x
}

func (x *execBench) must(err error) {
	x.b.Helper()
	if err != nil {
		x.b.Fatal(err)
	}
}

// authorized gives a shell process that may run the command once.
func (x *execBench) authorized(command string) *exec.Cmd {
	x.b.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calls++
	call := "call_" + strconv.Itoa(x.calls)
	e, err := events.New(benchChat, events.ActorPolicy, events.PermissionDecided{
		Permission: "per_" + strconv.Itoa(x.calls), Decision: events.Authorized, Session: benchSession, Call: call, Type: "bash", Command: command,
	})
	x.must(err)
	_, err = x.log.Append(x.b.Context(), e)
	x.must(err)
	cmd := exec.Command(released(x.b)+"-shell", "-c", command)
	cmd.Dir = x.workspace
	cmd.Env = append(os.Environ(), "OPENCODE_SESSION_ID="+benchSession, "OPENCODE_CALL_ID="+call,
		"POCKETCODER_SOCKET=unix:"+x.socket)
	return cmd
}

// execVariant is one way to run a command: start makes what runs it, whose output goes to out.
type execVariant struct {
	name  string
	every int // rounds: what is slow is measured in fewer of them
	start func(command string, out io.Writer) func() error
	took  []time.Duration
	cpu   []time.Duration // processor time of all processes that take part
}

// execVariants gives those that this machine has, plain first; of the others the benchmark says why not.
func execVariants(b *testing.B) []*execVariant {
	b.Helper()
	ways := []*execVariant{{name: "plain", every: 1, start: asProcess(func(command string) *exec.Cmd {
		return exec.Command("sh", "-c", command)
	})}}
	for _, level := range []isolation.Level{isolation.None, isolation.Landlock, isolation.Bwrap} {
		choice, err := isolation.Choose(string(level))
		if err != nil {
			notMeasured(b, string(level), err)
			continue
		}
		workspace := b.TempDir()
		worker, err := sandbox.Open(sandbox.Config{Workspace: workspace, Home: b.TempDir(), Shell: "sh", Isolation: choice,
			Quarantine: b.TempDir(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(worker.Close)
		ways = append(ways, &execVariant{name: "worker-" + string(level), every: 1, start: execOf(worker, workspace)})
		x := openExecBench(b, level)
		ways = append(ways, &execVariant{name: "shell-" + string(level), every: 1, start: asProcess(x.authorized)})
	}
	return append(ways, otherWays(b)...)
}

// notMeasured says so in a line that ops/bench shows in the place of a figure.
func notMeasured(b *testing.B, name string, why error) {
	b.Helper()
	b.Logf("not measured: %s: %v", name, why)
}

// asProcess runs a command with a program.
func asProcess(make func(command string) *exec.Cmd) func(string, io.Writer) func() error {
	return func(command string, out io.Writer) func() error {
		cmd := make(command)
		var output bytes.Buffer
		cmd.Stdout, cmd.Stderr = out, &output
		return func() error {
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("%w: %s", err, output.String())
			}
			return nil
		}
	}
}

// execOf runs a command in a worker of this process.
func execOf(w *sandbox.Worker, workspace string) func(string, io.Writer) func() error {
	n := 0
	return func(command string, out io.Writer) func() error {
		n++
		r := wire.Request{Exec: "x" + strconv.Itoa(n), Command: command, Cwd: workspace}
		return func() error {
			result := w.Exec(context.Background(), r, out, io.Discard)
			if result.Reason != wire.Exited || result.ExitCode != 0 {
				return fmt.Errorf("%+v", result)
			}
			return nil
		}
	}
}

// BenchmarkCommand compares the ways to run a short command, turn by turn.
func BenchmarkCommand(b *testing.B) {
	ways := execVariants(b)
	for round := 0; b.Loop(); round++ {
		for _, w := range ways {
			if round%w.every != 0 {
				continue
			}
			var out bytes.Buffer
			run := w.start("echo hi", &out)
			began := time.Now()
			if err := run(); err != nil || out.String() != "hi\n" {
				b.Fatalf("%s: %v: %q", w.name, err, out.String())
			}
			w.took = append(w.took, time.Since(began))
		}
	}
	b.ReportMetric(0, "ns/op")
	p50 := map[string]float64{}
	for _, w := range ways {
		p50[w.name] = percentile(w.took, 0.5)
		b.ReportMetric(p50[w.name], w.name+"-p50-ms")
		b.ReportMetric(percentile(w.took, 0.99), w.name+"-p99-ms")
		b.ReportMetric(p50[w.name]-p50["plain"], w.name+"-over-ms")
	}
	for _, rival := range []string{"ssh", "ssh-shared", "tmux"} {
		for _, w := range ways {
			if p50[rival] > 0 {
				b.ReportMetric(p50[rival]/p50[w.name], rival+"/"+w.name)
			}
		}
	}
}

// BenchmarkShellProcessor measures the processor time that one pocketcoder-shell takes, and beside it that of a Go
// program which does nothing: less no shell in Go can take.
func BenchmarkShellProcessor(b *testing.B) {
	x := openExecBench(b, isolation.None)
	dir := b.TempDir()
	x.must(os.WriteFile(filepath.Join(dir, "nothing.go"), []byte("package main\n\nfunc main() {}\n"), 0o600))
	nothing := filepath.Join(dir, "nothing")
	x.must(exec.Command("go", "build", "-ldflags", "-s -w", "-o", nothing, filepath.Join(dir, "nothing.go")).Run())
	processor := func(cmd *exec.Cmd) time.Duration {
		x.must(cmd.Run())
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	var shell, least []time.Duration
	for b.Loop() {
		shell = append(shell, processor(x.authorized("echo hi")))
		least = append(least, processor(exec.Command(nothing)))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(percentile(shell, 0.5), "processor-ms")
	b.ReportMetric(percentile(least, 0.5), "nothing-ms")
}

// BenchmarkCommands64 compares how many short commands a second get through, 64 at once.
func BenchmarkCommands64(b *testing.B) {
	ways := execVariants(b)
	for b.Loop() {
		for _, w := range ways {
			if w.every != 1 {
				continue
			}
			var runs []func() error
			for range 64 {
				runs = append(runs, w.start("echo hi", io.Discard))
			}
			var all sync.WaitGroup
			before, began := processorTime(b), time.Now()
			for _, run := range runs {
				all.Go(func() {
					if err := run(); err != nil {
						b.Errorf("%s: %v", w.name, err)
					}
				})
			}
			all.Wait()
			w.took, w.cpu = append(w.took, time.Since(began)), append(w.cpu, processorTime(b)-before)
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, w := range ways {
		if w.every == 1 {
			b.ReportMetric(64_000/percentile(w.took, 0.5), w.name+"-cmds/s")
			b.ReportMetric(percentile(w.cpu, 0.5)/64, w.name+"-processor-ms")
		}
	}
}

// BenchmarkGigabyte compares how fast a gigabyte of output arrives.
func BenchmarkGigabyte(b *testing.B) {
	ways := execVariants(b)
	for b.Loop() {
		for _, w := range ways {
			if w.name == "tmux" { // its screen drops most of it
				continue
			}
			var out byteCounter
			run := w.start("head -c 1000000000 /dev/zero", &out)
			before, began := processorTime(b), time.Now()
			if err := run(); err != nil || out != 1e9 {
				b.Fatalf("%s: %v after %d bytes", w.name, err, out)
			}
			w.took, w.cpu = append(w.took, time.Since(began)), append(w.cpu, processorTime(b)-before)
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, w := range ways {
		if len(w.took) > 0 {
			b.ReportMetric(1e6/percentile(w.took, 0.5), w.name+"-MB/s")
			b.ReportMetric(percentile(w.cpu, 0.5)/1000, w.name+"-processor-s")
		}
	}
}

type byteCounter int64

func (c *byteCounter) Write(p []byte) (int, error) {
	*c += byteCounter(len(p))
	return len(p), nil
}

// processorTime returns the processor time of this process, of its children and of theirs, as far as those have ended.
func processorTime(b *testing.B) (total time.Duration) {
	b.Helper()
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if err := syscall.Getrusage(who, &used); err != nil {
			b.Fatal(err)
		}
		total += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after) // state, ppid, ..., see proc_pid_stat(5)
		if fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		for _, ticks := range fields[11:15] { // utime, stime, cutime, cstime
			n, _ := strconv.Atoi(ticks)
			total += time.Duration(n) * time.Second / 100
		}
	}
	return total
}
