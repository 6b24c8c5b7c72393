package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
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
	"pocketcoder/cmd/app"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	chats "pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
)

func percentile(samples []time.Duration, p float64) float64 {
	slices.Sort(samples)
	return float64(samples[int(p*float64(len(samples)-1))].Microseconds()) / 1000
}

// memoryMiB is a value of a process's smaps_rollup: Rss is its resident memory, and Pss divides each page by the number
// of processes that have it.
func memoryMiB(b *testing.B, pid int, name string) float64 {
	b.Helper()
	memory, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(memory)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kib, _ := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kib) / 1024
		}
	}
	b.Fatalf("no %s in smaps_rollup of process %d", name, pid)
	return 0
}

// BenchmarkIdle measures what our processes hold on a fresh log, ready and idle: the system, its worker and, with
// bubblewrap, the guard of OpenCode. OpenCode is not ours.
func BenchmarkIdle(b *testing.B) {
	p := prepare(b, b.TempDir())
	p.program = released(b)
	p.runForTest()
	_, opencode := p.engine(b)
	_, after, _ := strings.Cut(p.output.String(), "worker pid ")
	pid, _, _ := strings.Cut(after, " ")
	worker, err := strconv.Atoi(pid)
	if err != nil {
		b.Fatalf("up did not name the worker: %s", p.output)
	}
	var all, guard float64
	time.Sleep(startMemory + time.Second) // idle is more than ready
	for b.Loop() {
		all, guard = memoryMiB(b, p.PID, "Pss")+memoryMiB(b, worker, "Pss"), 0
		if innermostPID(opencode) != opencode {
			all, guard = all+memoryMiB(b, opencode, "Pss"), memoryMiB(b, opencode, "Pss_Anon")
		}
	}
	b.ReportMetric(all, "Pss-MiB")
	b.ReportMetric(guard, "guard-MiB")
	b.ReportMetric(memoryMiB(b, p.PID, "Rss")+memoryMiB(b, worker, "Rss"), "resident-MiB")
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

// benchEvents is how many events the large log of BenchmarkStart holds, a thousand in each chat.
var benchEvents = flag.Int("start.events", 1_000_000, "number of events in the large log of BenchmarkStart")

// BenchmarkStart compares starting everything but OpenCode with what NATS needs to open the same log.
func BenchmarkStart(b *testing.B) {
	for _, n := range []int{0, *benchEvents} {
		b.Run(strconv.Itoa(n)+"-events", func(b *testing.B) {
			d := datadir.Dir(filepath.Join(b.TempDir(), "data"))
			fill(b, d, n)
			if n > 0 {
				// the server keeps the ids of this time, and a log of a million events is older
				time.Sleep(log.EventsConfig(log.DefaultOptions).Duplicates)
			}
			replay, _ := upTime(b, d) // the read model is built from the log
			var alone, up []time.Duration
			var resident float64
			for b.Loop() {
				alone = append(alone, natsTime(b, d))
				var took time.Duration
				took, resident = upTime(b, d)
				up = append(up, took)
			}
			b.ReportMetric(resident, "resident-MiB")
			b.ReportMetric(percentile(alone, 0.5), "nats-ms")
			b.ReportMetric(percentile(up, 0.5), "up-ms")
			b.ReportMetric(percentile(up, 0.5)-percentile(alone, 0.5), "over-ms")
			b.ReportMetric(replay.Seconds(), "first-s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// fill appends n OpenCode events, a thousand in each chat.
func fill(b *testing.B, d datadir.Dir, n int) {
	b.Helper()
	release, err := d.Open()
	if err != nil {
		b.Fatal(err)
	}
	defer release()
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	if err != nil {
		b.Fatal(err)
	}
	nc, err := openNATSInstance(b.Context(), d, keys)
	if err != nil {
		b.Fatal(err)
	}
	defer nc.close()
	l, err := log.Open(b.Context(), nc.Conn, log.DefaultOptions, secret.NewRedactor())
	if err != nil {
		b.Fatal(err)
	}
	var batch []events.Event
	for i := range n {
		chat := "chat" + strconv.Itoa(i%max(n/1000, 1))
		body := fmt.Sprintf(`{"sessionID":"ses_%s","part":{"id":"prt_%d","messageID":"msg_%s_%d","sessionID":"ses_%s","type":"text","text":"%s"},"time":1}`,
			chat, i, chat, i/20000, chat, strings.Repeat("word ", 40))
		e, err := events.NewOpenCode(chat, chats.DefaultEngine, "evt_"+strconv.Itoa(i), int64(i/1000),
			events.OpenCode{Type: "message.part.updated", Properties: []byte(body)})
		if err != nil {
			b.Fatal(err)
		}
		if batch = append(batch, e); len(batch) == log.MaxBatch || i == n-1 {
			if _, err := l.AppendAll(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
			batch = batch[:0]
		}
	}
}

// natsTime is how long NATS alone takes to open the log.
func natsTime(b *testing.B, d datadir.Dir) time.Duration {
	b.Helper()
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	nc, err := openNATSInstance(b.Context(), d, keys)
	took := time.Since(began)
	if err != nil {
		b.Fatal(err)
	}
	nc.close()
	return took
}

// buildReleased builds the programs that benchmarks measure, once, into a directory below binaries.
var buildReleased = sync.OnceValue(func() error {
	return goBuild(filepath.Join(binaries, "released")+"/", ".", "../pocketcoder-shell")
})

// released returns the path of the program as it is released, beside pocketcoder-shell.
func released(b *testing.B) string {
	b.Helper()
	if err := buildReleased(); err != nil {
		b.Fatal(err)
	}
	return filepath.Join(binaries, "released", "pocketcoder")
}

// upTime returns how long "up" takes from exec until everything but OpenCode and the sandbox is ready, and its memory
// then in MiB.
func upTime(b *testing.B, d datadir.Dir) (took time.Duration, resident float64) {
	b.Helper()
	tools := opencodetest.Tools(b)
	began := time.Now()
	cmd := exec.Command(released(b), "up", "--demo", "--data", string(d), "--workspace", b.TempDir(),
		"--http", "127.0.0.1:0", "--opencode", tools.OpenCode)
	var output expect.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "PATH="+filepath.Dir(tools.Ripgrep)+":"+os.Getenv("PATH")),
		&output, &output
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { cmd.Wait(); close(exited) }()
	defer func() { cmd.Process.Signal(os.Interrupt); <-exited }()
	for {
		select {
		case <-exited:
			b.Fatalf("up ended: %s", &output)
		default:
		}
		if r, err := d.Running(); err == nil && r.PID == cmd.Process.Pid {
			var health struct {
				Data map[string]struct{ State string }
			}
			getJSON(b, r.HTTP+"/api/health", &health)
			if health.Data["log"].State == "ready" && health.Data["read_model"].State != "starting" {
				return time.Since(began), memoryMiB(b, cmd.Process.Pid, "Rss")
			}
		}
		if time.Since(began) > 30*time.Minute {
			b.Fatal("not ready within 30 minutes")
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// natsInstance is the embedded NATS server of a data directory, and a connection to it.
type natsInstance struct {
	*nats.Conn
	server *natsconf.Server
}

// openNATSInstance starts NATS as up does.
func openNATSInstance(ctx context.Context, d datadir.Dir, keys natsconf.Keys) (n natsInstance, err error) {
	options, err := keys.Options(natsconf.Core, "pocketcoder")
	if err != nil {
		return n, err
	}
	if n.server, err = natsconf.Start(ctx, app.NATSConfig(d, keys)); err != nil {
		return n, err
	}
	n.Conn, err = nats.Connect("", append(options, nats.InProcessServer(n.server.Server))...)
	return n, err
}

func (n natsInstance) close() {
	n.Conn.Close()
	n.server.Close()
}
