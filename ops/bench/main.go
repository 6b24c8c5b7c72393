// Command bench measures PocketCoder against its budgets in one run and prints a table. Each line is a benchmark of the
// package that does the work; here are only the budgets. Machines differ and are noisy: ratios and differences within
// one run say more than absolutes.
//
//	go run ./ops/bench [REGEXP]    only the benchmarks whose name matches
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
)

// run is one benchmark and what is read from it.
type run struct {
	pkg, bench string
	time       string // -benchtime
	lines      []line
}

// line is one measured figure. Budget is the most (or, with atLeast, the least) it may be; 0 is no budget.
type line struct {
	name    string
	metric  string
	under   string // of a sub-benchmark
	budget  float64
	atLeast bool
}

var runs = []run{
	{"./events/log", "AppendVisible", "3000x", []line{
		{name: "event appended → seen by a subscriber, p50 ms", metric: "p50-ms", budget: 3},
		{name: "event appended → seen by a subscriber, p99 ms", metric: "p99-ms", budget: 25},
	}},
	{"./bridge/opencode/ingest", "Ingest", "5x", []line{
		{name: "burst of OpenCode events into the log, events/s", metric: "events/s", budget: 20_000, atLeast: true},
	}},
	{"./bridge/opencode", "Reconnect", "3x", []line{
		{name: "reconnect to an OpenCode with 10,000 sessions, ms", metric: "ms", budget: 2000},
		{name: "allocated meanwhile, MiB", metric: "allocated-MiB"},
	}},
	{"./bridge/watch", "Reflex", "300x", []line{
		{name: "worker done → model of its idle parent asked, p50 ms", metric: "p50-ms", budget: 50},
		{name: "worker done → model of its idle parent asked, p99 ms", metric: "p99-ms", budget: 250},
	}},
	{"./projections", "Rebuild", "2x", []line{
		{name: "rebuild of the read models of 1 M events in 1,000 chats, events/s", metric: "events/s", budget: 25_000, atLeast: true},
	}},
	{"./projections", "FirstLoad", "1x", []line{
		{name: "first read models of 1 M events in 500 chats that go on at the same time, events/s", metric: "events/s", budget: 15_000, atLeast: true},
	}},
	{"./web/export", "Export", "3x", []line{
		{name: "HTML page of a chat of 28,900 events, ms", metric: "ms", budget: 3000},
		{name: "the same, to the first bytes, ms", metric: "first-ms"},
	}},
	{"./handlers/permission", "DryRun", "3x", []line{
		{name: "rule tried on the last requests of a log of 100,000, ms", metric: "ms", budget: 1000},
		{name: "heap meanwhile, MiB", metric: "heap-MiB"},
	}},
	{"./web", "LargeLog", "1x", largeLogLines()},
	{"./web", "Backlog", "1x", []line{
		{name: "login and list of chats of an empty log, p50 ms", metric: "empty-ms"},
		{name: "the same in 560,000 events of 500 interleaved chats, workers begin, times that", metric: "begin", budget: 1.3},
		{name: "the slowest of these, ms", metric: "begin-max-ms"},
		{name: "the same while a worker reads all chats, times that of the empty log", metric: "read", budget: 1.3},
		{name: "the slowest of these, ms", metric: "read-max-ms"},
	}},
	{"./web/pages", "LongChat", "50x", []line{
		{name: "web app: first view of a chat of 3,000 messages, server time, p50 ms", metric: "p50-ms", budget: 200},
		{name: "the same, compressed, KiB", metric: "KiB", budget: 100},
	}},
	{"./web/pages", "Painted", "1x", []line{
		{name: "web app: fragment appended → painted in Chromium, p50 ms", metric: "p50-ms"},
		{name: "web app: fragment appended → painted in Chromium, p99 ms", metric: "p99-ms"},
	}},
	{"./web/pages", "OpenPages", "1x", []line{
		{name: "web app: 200 open pages, 40 fragments/s, with their clients, % of a processor", metric: "cpu-percent"},
		{name: "the same, resident with the clients, MiB", metric: "resident-MiB"},
		{name: "bytes of an answer of 400 fragments in one stream, KiB", metric: "stream-KiB"},
	}},
	{"./cmd/pocketcoder", "Command", "300x", commandLines()},
	{"./sandbox/quarantine", "Window", "5000x", []line{
		{name: "protected name created → moved out of the workspace, p50 ms", metric: "p50-ms"},
		{name: "protected name created → moved out of the workspace, p99 ms", metric: "p99-ms", budget: 20},
		{name: "protected name created → moved out of the workspace, most ms", metric: "max-ms"},
	}},
	{"./cmd/pocketcoder", "ShellProcessor", "300x", []line{
		{name: "pocketcoder-shell, processor time of a command, p50 ms", metric: "processor-ms", budget: 2},
		{name: "of this, a Go program that does nothing, p50 ms", metric: "nothing-ms"},
	}},
	{"./cmd/pocketcoder", "Commands64", "5x", manyLines()},
	{"./cmd/pocketcoder", "Gigabyte", "1x", gigabyteLines()},
	{"./cmd/pocketcoder", "Idle", "1x", []line{
		{name: "our processes, idle on a fresh log, shared memory counted once, MiB", metric: "Pss-MiB", budget: 70},
		{name: "of this, the guard of OpenCode alone, MiB", metric: "guard-MiB"},
		{name: "system and worker, idle on a fresh log, resident MiB", metric: "resident-MiB"},
	}},
	{"./cmd/pocketcoder", "Start", "3x", []line{
		{name: "NATS alone opens an empty log, ms", metric: "nats-ms", under: "0-events"},
		{name: "up without OpenCode, over that, ms", metric: "over-ms", under: "0-events", budget: 300},
		{name: "NATS alone opens a log of 1 M events, ms", metric: "nats-ms", under: "1000000-events"},
		{name: "up without OpenCode, over that, ms", metric: "over-ms", under: "1000000-events", budget: 300},
		{name: "up with 1 M events and no read model, s", metric: "first-s", under: "1000000-events"},
		{name: "up with 1 M events, ready, resident MiB", metric: "resident-MiB", under: "1000000-events", budget: 200},
	}},
}

// largeLogLines are the lines of requests to the API with 1 M events in 1,000 chats. One chat has 5,000 messages and
// 1,700 decisions.
func largeLogLines() []line {
	lines := []line{
		{name: "1 M events: slowest first page of a collection, p50 ms", metric: "slowest-page-ms", budget: 50},
		{name: "the same with its total, p50 ms", metric: "slowest-total-ms"},
		{name: "1 M events: list of chats, p50 ms", metric: "chats-ms", budget: 3},
		{name: "1 M events: chat opened, p50 ms", metric: "open-ms", budget: 20},
	}
	for _, request := range []string{"title", "decision", "exec", "message", "why", "login"} {
		lines = append(lines,
			line{name: request + " in a new chat of a small log, p50 ms", metric: request + "-ms"},
			line{name: request + " in a new chat of 1 M events, times that", metric: request + "-large-log", budget: 1.3},
			line{name: request + " in the long chat, times that", metric: request + "-long-chat", budget: 1.3})
	}
	return lines
}

const usage = `bench: measure PocketCoder against its budgets, in one run, and print the table.

  go run ./ops/bench               everything, about ten minutes
  go run ./ops/bench '^Command$'   only the benchmarks whose name matches: %s

Command runs "echo hi" turn by turn as plain sh -c, through the worker and through NATS and pocketcoder-shell, each behind no
isolation, landlock and bwrap; over ssh to an sshd of its own; and in a tmux terminal that is looked at every 200 ms.
ShellProcessor measures the processor time of pocketcoder-shell for one. Commands64 runs 64 at once, Gigabyte streams 1 GB of
output. What this machine does not have is shown as not measured.
Exit status: 0; 1 when a benchmark failed, 2 for wrong usage. A missed budget is shown and is no failure: machines differ.
`

func main() {
	flag.Usage = func() { fmt.Fprintf(os.Stderr, usage, names()) }
	flag.Parse()
	only, err := regexp.Compile(strings.Join(flag.Args(), " "))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(out, "measured\tbudget\t\t  what\n")
	failed := false
	for _, r := range runs {
		if !only.MatchString(r.bench) {
			continue
		}
		fmt.Fprintf(os.Stderr, "running %s of %s\n", r.bench, r.pkg)
		got, missing, err := measure(r)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed = true
			continue
		}
		for _, l := range r.lines {
			value, ok := got[l.under][l.metric]
			if why := l.why(missing); !ok && why != "" {
				fmt.Fprintf(out, "–\t\t\t  %s: not measured: %s\n", l.name, why)
				continue
			}
			if !ok {
				fmt.Fprintf(os.Stderr, "%s of %s reported no %s\n", r.bench, r.pkg, l.metric)
				failed = true
				continue
			}
			fmt.Fprintf(out, "%s\t%s\t%s\t  %s\n", number(value), l.bound(), l.verdict(value), l.name)
		}
	}
	out.Flush()
	if failed {
		os.Exit(1)
	}
}

func names() string {
	var all []string
	for _, r := range runs {
		all = append(all, r.bench)
	}
	return strings.Join(all, ", ")
}

// measure runs a benchmark and gives its metrics by sub-benchmark, and why something was not measured by what it was.
func measure(r run) (got map[string]map[string]float64, missing map[string]string, err error) {
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", "^Benchmark"+r.bench+"$", "-benchtime", r.time, "-timeout",
		"20m", r.pkg)
	text, err := cmd.CombinedOutput()
	if err != nil {
		return nil, nil, fmt.Errorf("benchmark %s of %s: %w\n%s", r.bench, r.pkg, err, text)
	}
	got, missing = map[string]map[string]float64{}, map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		if _, reason, ok := strings.Cut(lines.Text(), "not measured: "); ok {
			what, why, _ := strings.Cut(reason, ": ")
			missing[what] = why
		}
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark"+r.bench) {
			continue
		}
		_, under, _ := strings.Cut(fields[0], "/")
		if i := strings.LastIndexByte(under, '-'); i >= 0 {
			under = under[:i] // the number of processors
		}
		metrics := map[string]float64{}
		for i := 2; i+1 < len(fields); i += 2 {
			if metrics[fields[i+1]], err = strconv.ParseFloat(fields[i], 64); err != nil {
				return nil, nil, fmt.Errorf("benchmark %s of %s: read %q: %w", r.bench, r.pkg, lines.Text(), err)
			}
		}
		got[under] = metrics
	}
	return got, missing, nil
}

// why a line was not measured; empty when nothing is known to be missing.
func (l line) why(missing map[string]string) string {
	for what, why := range missing {
		if strings.Contains(l.metric, what) {
			return why
		}
	}
	return ""
}

func (l line) bound() string {
	switch {
	case l.budget == 0:
		return ""
	case l.atLeast:
		return "≥ " + number(l.budget)
	}
	return "≤ " + number(l.budget)
}

func (l line) verdict(value float64) string {
	ok := value <= l.budget
	if l.atLeast {
		ok = value >= l.budget
	}
	switch {
	case l.budget == 0:
		return ""
	case ok:
		return "kept"
	}
	return "MISSED"
}

func number(v float64) string {
	if v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
