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

// Usage is what the live processes of a command take at one moment.
type Usage struct {
	Memory    Size // 0 where its cgroup bounds it
	Processes int64
	CPUTime   time.Duration // the most that was seen
	refused   bool          // the kernel refused it a process
}

// Exceeded names the limit that is passed. What a command took stays so when all its processes have ended: there is
// nothing to stop then.
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

// Sampler looks at the processes of one command from time to time. It bounds what the command's cgroup does not.
//
// It does not see memory in files (those of /tmp, and those without a name, of memfd_create(2)), nor all of the
// processor time of processes that nobody waited for.
type Sampler struct {
	Group   *Group // nil where there is none
	cpuTime time.Duration
	full    atomic.Bool // a process was seen with as many open files as it may have
}

// Sample adds up what processes take. It calls dead with each that has ended.
func (s *Sampler) Sample(pids []int, l Limits, dead func(pid int)) Usage {
	u := Usage{refused: s.Group.refusedProcesses()}
	var living []int
	for _, pid := range pids {
		if l.Processes > 0 && u.Processes > l.Processes {
			return u // the rest is no more of interest, and there may be thousands
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

// proportionalMemory is what processes keep in memory, of which they share some. The kernel walks through all of it to
// tell.
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

// isFull reports whether a process can open no further file, or no pipe, which takes two. The limit is on their
// numbers. Shells leave some low ones free, and put single files at the highest, so most numbers must be taken, and
// the last.
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

// Hit names the limit that a command met which failed by itself, with exit code code and after it and the processes it
// waited for took that much processor time. The kernel ends a process for its file size or processor time by a signal,
// which a shell reports as 128+n for the last of its commands.
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
