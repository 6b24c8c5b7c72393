package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// processes are processes of a system that was killed, with what they were called by.
type processes map[int]string

// leftover finds what runs of a system beside the program itself: whatever names its directory in its arguments or its
// environment, which OpenCode, the sandbox worker and every command do.
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

// goneWithin is how long what the program left may take to end: the worker gives its commands wire.KillGrace.
const goneWithin = 5 * time.Second

// areGone waits until none of them is left.
func (left processes) areGone(t *testing.T) {
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
