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

// childAttributes make OpenCode leader of its own process group, which a Ctrl-C in our terminal does not reach, and
// make the kernel kill it when the thread that started it ends, which is how it dies with us.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// processTree returns a process and its descendants. It misses descendants whose parents have ended.
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

// processorWait returns how long the main thread of a process or of a descendant has waited for a processor: the
// longest of them. OpenCode answers on its main thread. Adding up all threads would count more than the time that has
// passed.
func processorWait(pid int) (longest time.Duration) {
	for _, p := range processTree(pid) {
		_, waited := processorTimes(p.pid)
		longest = max(longest, waited)
	}
	return longest
}

// processorTime returns how long the main threads of a process and of its descendants have run.
func processorTime(pid int) (all time.Duration) {
	for _, p := range processTree(pid) {
		ran, _ := processorTimes(p.pid)
		all += ran
	}
	return all
}

// processorTimes returns how long the main thread of a process has run, and has waited for a processor.
func processorTimes(pid int) (ran, waited time.Duration) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	_, _ = fmt.Sscan(string(stat), &ran, &waited) // 0 if it has ended
	return ran, waited
}

// processID distinguishes one run of a process from any other with the same pid: boot, and start time in clock ticks
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
