package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"pocketcoder/bridge/opencode/opencodetest"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/ops/natsconf"
)

// execBench is the exec path without OpenCode: the embedded server, the gate, and a worker in a process of its own.
type execBench struct {
	b         *testing.B
	keys      natsconf.Keys
	url       string
	handlers  *handlers.Handlers
	workspace string
	calls     int
}

const benchChat, benchSession = "bench", "ses_bench"

func openExecBench(b *testing.B) *execBench {
	b.Helper()
	d := dataDir(b.TempDir())
	x := &execBench{b: b, workspace: b.TempDir()}
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	var err error
	x.keys, err = natsconf.LoadKeys(d.path("keys"))
	must(err)
	nc, url, closeNATS, err := openNATS(b.Context(), upOptions{data: d}, x.keys)
	must(err)
	b.Cleanup(closeNATS)
	x.url = url
	log, err := events.Open(b.Context(), nc, events.DefaultStreamOptions, events.NewRedactor())
	must(err)
	x.handlers = &handlers.Handlers{Log: log}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	session := func(string) (handlers.Session, bool) {
		return handlers.Session{Chat: benchChat, Directory: x.workspace}, true
	}
	running.Go(func() {
		_ = handlers.Exec{Handlers: x.handlers, Conn: nc, Engine: engine, Pool: pool, Session: session, Log: slog.Default()}.Run(ctx)
	})
	worker := exec.Command(filepath.Join(binaries, "pocketcoder"), "sandbox", "--lifeline", "--nats", url,
		"--key", x.keys.SeedFile(natsconf.Worker), "--workspace", x.workspace)
	lifeline, err := worker.StdinPipe()
	must(err)
	must(worker.Start())
	b.Cleanup(func() { cancel(); running.Wait(); lifeline.Close(); worker.Wait() })
	eventually(b, "a worker answers", func() bool {
		_, err := nc.Request("exec.run."+pool, []byte("{}"), 100*time.Millisecond)
		return err != nats.ErrNoResponders
	})
	return x
}

// authorized gives a shell process that may run the command once.
func (x *execBench) authorized(command string) *exec.Cmd {
	x.b.Helper()
	x.calls++
	call := "call_" + strconv.Itoa(x.calls)
	e, err := events.New(benchChat, events.ActorPolicy, events.PermissionDecided{
		Permission: "per_" + strconv.Itoa(x.calls), Decision: events.Authorized, Session: benchSession, Call: call, Type: "bash", Command: command,
	})
	if err == nil {
		_, err = x.handlers.Log.Append(x.b.Context(), e)
	}
	if err != nil {
		x.b.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(binaries, "pocketcoder-shell"), "-c", command)
	cmd.Dir = x.workspace
	cmd.Env = append(os.Environ(), "OPENCODE_SESSION_ID="+benchSession, "OPENCODE_CALL_ID="+call, "POCKETCODER_NATS_URL="+x.url,
		"POCKETCODER_SHELL_KEY="+x.keys.SeedFile(natsconf.Shell), "POCKETCODER_ENGINE="+engine)
	return cmd
}

func timed(b *testing.B, cmd *exec.Cmd) time.Duration {
	b.Helper()
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return time.Since(began)
}

func percentile(samples []time.Duration, p float64) float64 {
	slices.Sort(samples)
	return float64(samples[int(p*float64(len(samples)-1))].Microseconds()) / 1000
}

// BenchmarkShellBridge compares a command through the whole exec path, recorded, with plain sh -c, turn by turn.
func BenchmarkShellBridge(b *testing.B) {
	x := openExecBench(b)
	var plain, bridge []time.Duration
	for b.Loop() {
		plain = append(plain, timed(b, exec.Command("sh", "-c", "echo hi")))
		bridge = append(bridge, timed(b, x.authorized("echo hi")))
	}
	b.ReportMetric(percentile(plain, 0.5), "plain-p50-ms")
	b.ReportMetric(percentile(plain, 0.99), "plain-p99-ms")
	b.ReportMetric(percentile(bridge, 0.5), "bridge-p50-ms")
	b.ReportMetric(percentile(bridge, 0.99), "bridge-p99-ms")
	b.ReportMetric(percentile(bridge, 0.5)-percentile(plain, 0.5), "over-p50-ms")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkShellBridge64 runs 64 commands at once, plain and through the exec path.
func BenchmarkShellBridge64(b *testing.B) {
	x := openExecBench(b)
	rate := func(make func() *exec.Cmd) float64 {
		var all []*exec.Cmd
		for range 64 {
			all = append(all, make())
		}
		began := time.Now()
		var wait sync.WaitGroup
		for _, cmd := range all {
			wait.Go(func() {
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Errorf("%v: %s", err, out)
				}
			})
		}
		wait.Wait()
		return 64 / time.Since(began).Seconds()
	}
	var plain, bridge float64
	n := 0
	for b.Loop() {
		plain += rate(func() *exec.Cmd { return exec.Command("sh", "-c", "echo hi") })
		bridge += rate(func() *exec.Cmd { return x.authorized("echo hi") })
		n++
	}
	b.ReportMetric(plain/float64(n), "plain-cmds/s")
	b.ReportMetric(bridge/float64(n), "bridge-cmds/s")
	b.ReportMetric(0, "ns/op")
}

// residentMiB is a process's resident memory.
func residentMiB(b *testing.B, pid int) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kib) / 1024
		}
	}
	b.Fatal("no VmRSS in /proc/PID/status")
	return 0
}

// BenchmarkIdle measures what our two processes hold on a fresh log, ready and idle. OpenCode is not ours.
func BenchmarkIdle(b *testing.B) {
	p := start(b)
	said, pid, found := strings.Cut(p.output.String(), "worker pid ")
	worker, err := strconv.Atoi(strings.Fields(pid + " ")[0])
	if !found || err != nil {
		b.Fatalf("up did not name the worker: %s", said)
	}
	var ours float64
	for b.Loop() {
		ours = residentMiB(b, p.PID) + residentMiB(b, worker)
	}
	b.ReportMetric(ours, "resident-MiB")
	b.ReportMetric(0, "ns/op")
}

func getJSON(t testing.TB, url string, out any) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		t.Fatal(err)
	}
}

// benchEvents is how many events the large log of BenchmarkStart holds.
const benchEvents = 1_000_000

// BenchmarkStart compares starting everything but OpenCode with what NATS needs to open the same log.
func BenchmarkStart(b *testing.B) {
	for _, n := range []int{0, benchEvents} {
		b.Run(strconv.Itoa(n)+"-events", func(b *testing.B) {
			d := dataDir(filepath.Join(b.TempDir(), "data"))
			fill(b, d, n)
			replay := upTime(b, d) // the read model is built from the log
			var alone, up []time.Duration
			for b.Loop() {
				alone = append(alone, natsTime(b, d))
				up = append(up, upTime(b, d))
			}
			b.ReportMetric(percentile(alone, 0.5), "nats-ms")
			b.ReportMetric(percentile(up, 0.5), "up-ms")
			b.ReportMetric(percentile(up, 0.5)-percentile(alone, 0.5), "over-ms")
			b.ReportMetric(replay.Seconds(), "first-s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// fill appends n OpenCode events in a thousand chats.
func fill(b *testing.B, d dataDir, n int) {
	b.Helper()
	keys, err := natsconf.LoadKeys(d.path("keys"))
	if err != nil {
		b.Fatal(err)
	}
	nc, _, closeNATS, err := openNATS(b.Context(), upOptions{data: d}, keys)
	if err != nil {
		b.Fatal(err)
	}
	defer closeNATS()
	log, err := events.Open(b.Context(), nc, events.DefaultStreamOptions, events.NewRedactor())
	if err != nil {
		b.Fatal(err)
	}
	var batch []events.Event
	for i := range n {
		chat := "chat" + strconv.Itoa(i%1000)
		body := fmt.Sprintf(`{"sessionID":"ses_%s","part":{"id":"prt_%d","messageID":"msg_%s_%d","sessionID":"ses_%s","type":"text","text":"%s"},"time":1}`,
			chat, i, chat, i/20000, chat, strings.Repeat("word ", 40))
		e, err := events.NewOpenCode(chat, engine, "evt_"+strconv.Itoa(i), int64(i/1000), events.OpenCode{Type: "message.part.updated", Properties: []byte(body)})
		if err != nil {
			b.Fatal(err)
		}
		if batch = append(batch, e); len(batch) == events.MaxBatch || i == n-1 {
			if _, err := log.AppendAll(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
			batch = batch[:0]
		}
	}
}

// natsTime is how long NATS alone takes to open the log.
func natsTime(b *testing.B, d dataDir) time.Duration {
	b.Helper()
	keys, err := natsconf.LoadKeys(d.path("keys"))
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	_, _, closeNATS, err := openNATS(b.Context(), upOptions{data: d}, keys)
	took := time.Since(began)
	if err != nil {
		b.Fatal(err)
	}
	closeNATS()
	return took
}

// upTime is how long "up" takes from exec until everything but OpenCode and the sandbox is ready.
func upTime(b *testing.B, d dataDir) time.Duration {
	b.Helper()
	tools := opencodetest.Tools(b)
	began := time.Now()
	cmd := exec.Command(filepath.Join(binaries, "pocketcoder"), "up", "--demo", "--data", string(d), "--workspace", b.TempDir(),
		"--http", "127.0.0.1:0", "--opencode", tools.OpenCode)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(tools.Ripgrep)+":"+os.Getenv("PATH"))
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() }()
	for {
		if r, err := d.running(); err == nil && r.PID == cmd.Process.Pid {
			var health struct {
				Data map[string]struct{ State string }
			}
			getJSON(b, r.HTTP+"/api/health", &health)
			if health.Data["log"].State == "ready" && health.Data["read_model"].State != "starting" {
				return time.Since(began)
			}
		}
		if time.Since(began) > 5*time.Minute {
			b.Fatal("not ready within 5 minutes")
		}
		time.Sleep(2 * time.Millisecond)
	}
}
