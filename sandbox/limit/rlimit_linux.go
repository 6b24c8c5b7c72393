package limit

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Apply sets limits of the kernel on a process that has not run yet; its children inherit them. It also makes the
// kernel end these processes first when memory runs out, because the limit of memory is one for each command, not for
// all.
//
// The address space (RLIMIT_AS) is not bounded: Go, Java and JavaScript engines reserve hundreds of gigabytes that they
// never touch.
func (l Limits) Apply(pid int) error {
	limits := []struct {
		name     string
		resource int
		value    uint64
		above    uint64 // how far the hard limit is above
	}{
		{"file-size", unix.RLIMIT_FSIZE, uint64(l.FileSize), 0},
		{"open-files", unix.RLIMIT_NOFILE, uint64(l.OpenFiles), 0},
		// SIGXCPU, and a second later SIGKILL
		{"cpu-time", unix.RLIMIT_CPU, uint64((l.CPUTime + time.Second - 1) / time.Second), 1},
		{"processes", unix.RLIMIT_NPROC, l.userProcesses(), 0},
	}
	if err := lower(pid, unix.RLIMIT_CORE, 0, 0); err != nil { // a core file is the memory of a program in the workspace
		return fmt.Errorf("limit core files: %w", err)
	}
	// It is a preference: a machine whose /proc is read-only, or a process that has ended already, needs no error.
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

// lower sets a resource limit, but never above what the process has already.
func lower(pid, resource int, value, above uint64) error {
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, resource, nil, &limit); err != nil {
		return err
	}
	limit.Max = min(limit.Max, value+above)
	limit.Cur = min(limit.Cur, value, limit.Max)
	return unix.Prlimit(pid, resource, &limit, nil)
}

// userProcesses is the resource limit for processes, which counts all of a user and does not hold for root. It only
// slows a fork bomb between two looks, so it is generous: all tasks of the machine (the fourth field of /proc/loadavg,
// proc_loadavg(5)), and room for another command of the same user that has all it may have.
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

func totalMemory() Size {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return Size(info.Totalram) * Size(info.Unit)
}
