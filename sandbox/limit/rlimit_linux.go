package limit

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Apply sets the kernel's resource limits of a process that has not run yet. Its children inherit them. Apply also
// makes the kernel end these processes first when the machine runs out of memory, because the memory limit is for each
// command, not for all together.
//
// The address space (RLIMIT_AS) is not limited: Go, Java and JavaScript engines reserve hundreds of gigabytes that they
// never use.
func (l Limits) Apply(pid int) error {
	limits := []struct {
		name     string
		resource int
		value    uint64
		above    uint64 // difference between the hard and the soft limit
	}{
		{"file-size", unix.RLIMIT_FSIZE, uint64(l.FileSize), 0},
		{"open-files", unix.RLIMIT_NOFILE, uint64(l.OpenFiles), 0},
		// SIGXCPU, and SIGKILL one second later
		{"cpu-time", unix.RLIMIT_CPU, uint64((l.CPUTime + time.Second - 1) / time.Second), 1},
		{"processes", unix.RLIMIT_NPROC, l.userProcesses(), 0},
	}
	if err := lower(pid, unix.RLIMIT_CORE, 0, 0); err != nil { // it would hold a program's memory
		return fmt.Errorf("limit core files: %w", err)
	}
	// An error is ignored: /proc may be read-only, or the process may have ended.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0)
	for _, limit := range limits {
		if limit.value == 0 {
			continue
		}
		if err := lower(pid, limit.resource, limit.value, limit.above); err != nil {
			return fmt.Errorf("limit %s: %w", limit.name, err)
		}
	}
	return nil
}

// lower sets a resource limit, but never above the current limit of the process.
func lower(pid, resource int, value, above uint64) error {
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, resource, nil, &limit); err != nil {
		return err
	}
	limit.Max = min(limit.Max, value+above)
	limit.Cur = min(limit.Cur, value, limit.Max)
	return unix.Prlimit(pid, resource, &limit, nil)
}

// userProcesses returns the resource limit for processes. The kernel counts all processes of the user against it, and
// does not apply it to root. It only slows a fork bomb down between two samples, so it is generous: all tasks of the
// machine (the fourth field of /proc/loadavg), plus the full limits of two commands.
func (l Limits) userProcesses() uint64 {
	data, err := os.ReadFile("/proc/loadavg")
	fields := bytes.Fields(data)
	if l.Processes == 0 || err != nil || len(fields) < 4 {
		return 0
	}
	_, all, _ := bytes.Cut(fields[3], []byte("/"))
	n, _ := strconv.ParseUint(string(all), 10, 32)
	return n + 2*uint64(l.Processes)
}

func TotalMemory() Size {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return Size(info.Totalram) * Size(info.Unit)
}
