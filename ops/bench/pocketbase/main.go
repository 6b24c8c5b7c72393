// Command pocketbase measures the records API and realtime of PocketCoder beside those of PocketBase: the same
// collections, rules, clients and load, each server in a process of its own, one after the other in the same run. It
// is a module of its own, so that the product does not depend on PocketBase.
//
//	go run -C ops/bench/pocketbase .
//
// PocketBase saves records in its own process, as a relay built on it does; PocketCoder appends OpenCode's events to
// its log, synced to disk before they are seen, and computes the records from them. The column "unsynced" is
// PocketCoder without the syncs, to show what they cost.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// target is a server that is measured, and what there is in it.
type target struct {
	URL    string `json:"url"`
	Email  string `json:"email"`
	Chat   string `json:"chat"`   // of the account, empty
	Streak string `json:"streak"` // the message that emitted events change

	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
	token string
}

const password = "correct horse battery"

func main() {
	if len(os.Args) > 1 {
		serve := map[string]func() error{"pocketbase": servePocketBase,
			"pocketcoder": func() error { return servePocketCoder(true) },
			"unsynced":    func() error { return servePocketCoder(false) },
		}[os.Args[1]]
		if serve == nil {
			fail(fmt.Errorf("unknown argument %q", os.Args[1]))
		}
		fail(serve())
		return
	}
	results := map[string]map[string]float64{}
	for _, name := range []string{"pocketbase", "pocketcoder", "unsynced"} {
		fmt.Fprintln(os.Stderr, "measuring", name)
		t, err := start(name)
		fail(err)
		results[name], err = t.measure()
		t.stop()
		fail(err)
	}
	show(results)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// start runs the server as a process of its own, which says where it is on its first line.
func start(name string) (*target, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	t := &target{name: name, cmd: exec.Command(self, name)}
	t.cmd.Stderr = os.Stderr
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if t.stdin, err = t.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	t.lines = bufio.NewScanner(out)
	if !t.lines.Scan() {
		return nil, fmt.Errorf("%s did not start", name)
	}
	if err := json.Unmarshal(t.lines.Bytes(), t); err != nil {
		return nil, fmt.Errorf("%s said %q: %w", name, t.lines.Text(), err)
	}
	return t, t.login()
}

// stop ends the server: it ends when its stdin does.
func (t *target) stop() {
	t.stdin.Close()
	done := make(chan struct{})
	go func() { t.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.cmd.Process.Kill()
	}
}

// emit makes the server change one record count times, rate times a second, and waits until it has. Each change
// carries its number and time.
func (t *target) emit(rate, count int) error {
	if _, err := fmt.Fprintln(t.stdin, rate, count); err != nil {
		return err
	}
	if !t.lines.Scan() {
		return fmt.Errorf("%s ended", t.name)
	}
	return nil
}

// eachEmit is the server's side: it carries out what emit asks for until stdin ends.
func eachEmit(change func(text string) error) error {
	asked := bufio.NewScanner(os.Stdin)
	for asked.Scan() {
		var rate, count int
		if _, err := fmt.Sscan(asked.Text(), &rate, &count); err != nil {
			return err
		}
		began := time.Now()
		for i := range count {
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
			if err := change(fmt.Sprintf("%d %d %s", i, time.Now().UnixNano(), padding)); err != nil {
				return err
			}
		}
		fmt.Println("done")
	}
	return nil
}

var padding = strings.Repeat("x", 280)

// resident is the memory of the server's process in MiB.
func (t *target) resident() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", t.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return kib / 1024, err
}

// rows are the lines of the table. Of more, more is better; of the others, less.
var rows = []struct {
	name string
	more bool
}{
	{"list of 50 messages, p50 ms", false}, {"list of 50 messages, p99 ms", false}, {"lists of 50 messages by 8 clients, per second", true},
	{"message created → seen in realtime, p50 ms", false}, {"message created → seen in realtime, p99 ms", false},
	{"event → subscriber at 200/s, p50 ms", false}, {"event → subscriber at 200/s, p99 ms", false},
	{"event → subscriber at 1000/s, p50 ms", false}, {"event → subscriber at 1000/s, p99 ms", false}, {"events/s kept up with at 1000/s", true},
	{"event → each of 1,000 subscribers at 20/s, p50 ms", false}, {"event → each of 1,000 subscribers at 20/s, p99 ms", false},
	{"resident after start, MiB", false}, {"resident with 1,000 idle subscribers, MiB", false}, {"resident after all of it, MiB", false},
}

func show(results map[string]map[string]float64) {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(out, "PocketCoder\tunsynced\tPocketBase\t\t  what\n")
	for _, row := range rows {
		ours, theirs := results["pocketcoder"][row.name], results["pocketbase"][row.name]
		better := ours < theirs
		if row.more {
			better = ours > theirs
		}
		verdict := "worse"
		if better {
			verdict = "better"
		}
		fmt.Fprintf(out, "%.2f\t%.2f\t%.2f\t%s\t  %s\n", ours, results["unsynced"][row.name], theirs, verdict, row.name)
	}
	out.Flush()
}
