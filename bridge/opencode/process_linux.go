package opencode

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// childAttributes make OpenCode leader of its own process group, which a Ctrl-C in our terminal does not reach, and make
// the kernel kill it when the thread that started it ends, which is how it dies with us.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// processTree returns a process and all its descendants that its children have not left behind.
func processTree(pid int) (all []process) {
	id := processID(pid)
	if id == "" {
		return nil
	}
	all = append(all, process{pid, id})
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		children, _ := os.ReadFile(task)
		for _, child := range strings.Fields(string(children)) {
			if n, err := strconv.Atoi(child); err == nil {
				all = append(all, processTree(n)...)
			}
		}
	}
	return all
}

// processorWait returns how long the threads of a process and its descendants have waited for a processor, in all.
func processorWait(pid int) (all time.Duration) {
	for _, p := range processTree(pid) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.pid))
		for _, thread := range threads {
			stat, _ := os.ReadFile(thread)
			if fields := strings.Fields(string(stat)); len(fields) > 1 {
				ns, _ := strconv.ParseInt(fields[1], 10, 64)
				all += time.Duration(ns)
			}
		}
	}
	return all
}

// processID tells one run of a process from any other with the same pid: boot, and start time in clock ticks
// (proc_pid_stat(5), field 22). It is empty when there is no such process.
func processID(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), " ") // field 2 may hold anything
	fields := strings.Fields(rest)
	const state, start = 0, 19 // proc(5) counts them from 1, and its third is our first
	if len(fields) <= start || fields[state] == "Z" {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "/" + fields[start]
}
