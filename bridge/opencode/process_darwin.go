package opencode

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// childAttributes make OpenCode leader of its own process group, which a Ctrl-C in our terminal does not reach.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// processTree returns only the process: macOS has no isolation, and the whole process group is killed.
func processTree(pid int) []process { return []process{{pid, processID(pid)}} }

// processorWait returns 0: macOS does not report it.
func processorWait(int) time.Duration { return 0 }

// processorTime returns the present time: macOS does not report how long a process has run, so each counts as busy.
func processorTime(int) time.Duration { return time.Duration(time.Now().UnixNano()) }

// processID distinguishes one run of a process from any other with the same pid: its start time. It is empty when
// there is no such process.
func processID(pid int) string {
	out, err := exec.Command("ps", "-o", "lstart=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
