package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// processes are the processes of a killed system, with their command lines.
type processes map[int]string

// leftover finds the processes of a system except for the program itself: those with its directory in their arguments
// or environment, as OpenCode, the sandbox worker and every command have it.
func (p *process) leftover(t *testing.T) processes {
	t.Helper()
	dir := strings.TrimSuffix(p.workspace, "/workspace")
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Skip("only Linux tells what processes were started with")
	}
	found := processes{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || !alive(pid) {
			continue
		}
		args := strings.Join(procFile(pid, "cmdline"), " ")
		if strings.Contains(args, dir) || strings.Contains(strings.Join(procFile(pid, "environ"), " "), dir) {
			found[pid] = args
		}
	}
	return found
}

// resume continues paused processes, so that they notice that the program was killed.
func (left processes) resume() {
	for pid := range left {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended
	}
}

// goneWithin limits the time in which the remaining processes end: wire.KillGrace, plus time for a busy machine.
const goneWithin = 2 * time.Minute

// awaitEnd waits until all processes have ended.
func (left processes) awaitEnd(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(goneWithin); ; time.Sleep(20 * time.Millisecond) {
		var still []string
		for pid, args := range left {
			if alive(pid) {
				still = append(still, fmt.Sprintf("%d %s", pid, args))
			}
		}
		if len(still) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind:\n%s", strings.Join(still, "\n"))
		}
	}
}
