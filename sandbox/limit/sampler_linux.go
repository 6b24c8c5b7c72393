package limit

import (
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/proc"
	"pocketcoder/sandbox/wire"
)

// Usage is the resource usage of a command's live processes at one moment.
type Usage struct {
	Memory    Size // 0 if the cgroup limits it
	Processes int64
	CPUTime   time.Duration // the maximum of all samples
	refused   bool          // the kernel has refused a new process
}

// Exceeded returns the limit that a command exceeds, or Exited for none. It returns Exited if no process is left.
func (l Limits) Exceeded(u Usage) wire.Reason {
	switch {
	case u.Processes == 0:
	case l.Memory > 0 && u.Memory > l.Memory:
		return wire.Memory
	case l.Processes > 0 && (u.Processes > l.Processes || u.refused):
		return wire.Processes
	case l.CPUTime > 0 && u.CPUTime >= l.CPUTime:
		return wire.CPUTime
	}
	return wire.Exited
}

// Sampler samples the processes of one command. It enforces the limits that the command's cgroup does not.
//
// It does not see memory in files (those of /tmp, and those of memfd_create(2)), nor all of the processor time of
// processes whose parent did not wait for them.
type Sampler struct {
	Group   *Group // nil if there is none
	cpuTime time.Duration
	full    atomic.Bool // a process has reached its limit of open files
}

// Sample adds up the usage of processes. It calls dead with each that has ended.
func (s *Sampler) Sample(pids []int, l Limits, dead func(pid int)) Usage {
	u := Usage{refused: s.Group.refusedProcesses()}
	var living []int
	for _, pid := range pids {
		if l.Processes > 0 && u.Processes > l.Processes {
			return u // the limit is exceeded, and there may be thousands of processes
		}
		status := proc.ReadLines(pid, "status")
		if state := status.Value("State"); state != "" && state[0] == 'Z' {
			if status.Number("Threads") <= 1 {
				dead(pid)
				continue
			}
			pid = proc.LivingThread(pid)
			status = proc.ReadLines(pid, "status")
		}
		if status == nil {
			continue
		}
		living = append(living, pid)
		u.Processes += status.Number("Threads")
		u.Memory += Size(status.Number("RssAnon")+status.Number("RssShmem")+status.Number("VmSwap")) << 10
		if l.OpenFiles > 0 && status.Number("FDSize") >= l.OpenFiles && isFull(pid, l.OpenFiles) {
			s.full.Store(true)
		}
	}
	switch {
	case s.Group.boundsMemory():
		u.Memory = 0
	case l.Memory > 0 && u.Memory > l.Memory:
		u.Memory = proportionalMemory(living)
	}
	s.cpuTime = max(s.cpuTime, s.processorTime(living))
	u.CPUTime = s.cpuTime
	return u
}

// proportionalMemory returns the memory of processes, with shared memory counted once. The kernel walks through all of
// it for the result.
func proportionalMemory(pids []int) (sum Size) {
	for _, pid := range pids {
		share := proc.ReadLines(pid, "smaps_rollup")
		sum += Size(share.Number("Pss_Anon")+share.Number("Pss_Shmem")+share.Number("SwapPss")) << 10
	}
	return sum
}

func (s *Sampler) processorTime(pids []int) (sum time.Duration) {
	if s.Group != nil {
		return s.Group.cpuTime()
	}
	for _, pid := range pids {
		sum += proc.ProcessorTime(pid)
	}
	return sum
}

// isFull reports whether a process cannot open another file or pipe. The limit is on descriptor numbers. Shells leave
// some low numbers free and use the highest for single files. So most numbers must be in use, and one of the last two.
func isFull(pid int, limit int64) bool {
	dir, err := os.Open(proc.Path(pid, "fd"))
	if err != nil {
		return false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	last := slices.ContainsFunc(names, func(name string) bool {
		fd, err := strconv.ParseInt(name, 10, 64)
		return err == nil && fd >= limit-2
	})
	return last && int64(len(names)) >= limit/4*3
}

// Hit returns the limit that a command has met before it failed, or Exited for none. code is its exit code, took its
// processor time including the children it waited for. The kernel signals a process that exceeds its file size or
// processor time, and a shell reports the signal as 128+n.
func (s *Sampler) Hit(code int, took time.Duration, l Limits) wire.Reason {
	switch {
	case s.Group.killedForMemory():
		return wire.Memory
	case s.Group.refusedProcesses():
		return wire.Processes
	case l.CPUTime > 0 && (code == 128+int(unix.SIGXCPU) || code > 128 && max(took, s.Group.cpuTime()) >= l.CPUTime):
		return wire.CPUTime
	case l.FileSize > 0 && code == 128+int(unix.SIGXFSZ):
		return wire.FileSize
	case s.full.Load():
		return wire.OpenFiles
	}
	return wire.Exited
}
