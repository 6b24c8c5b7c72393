package opencode

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// childAttributes make OpenCode leader of its own process group, which a Ctrl-C in our terminal does not reach, and make
// the kernel kill it when the thread that started it ends, which is how it dies with us.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
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
