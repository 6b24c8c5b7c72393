package sandbox

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/wire"
)

// usage is what the live processes of a tree take at one moment.
type usage struct {
	memory    Size
	processes int64 // and threads
	cpuTime   time.Duration
	refused   bool // the kernel refused it a process
}

// passed names the limit that is passed.
func (l Limits) passed(u usage) wire.Reason {
	switch {
	case l.Memory > 0 && u.memory > l.Memory:
		return wire.Memory
	case l.Processes > 0 && (u.processes > l.Processes || u.refused):
		return wire.Processes
	case l.CPUTime > 0 && u.cpuTime >= l.CPUTime:
		return wire.CPUTime
	}
	return wire.Exited
}

// hit names the limit that a command met which failed by itself, with exit code code and after it and the processes it
// waited for took that much processor time. The kernel ends a process for its file size or processor time by a signal,
// which a shell reports as 128+n for the last of its commands.
func (t *tree) hit(code int, took time.Duration, l Limits) wire.Reason {
	switch {
	case t.group.killedForMemory():
		return wire.Memory
	case t.group.refusedProcesses():
		return wire.Processes
	case l.CPUTime > 0 && (code == 128+int(unix.SIGXCPU) || code > 128 && max(took, t.group.cpuTime()) >= l.CPUTime):
		return wire.CPUTime
	case l.FileSize > 0 && code == 128+int(unix.SIGXFSZ):
		return wire.FileSize
	case t.full.Load():
		return wire.OpenFiles
	}
	return wire.Exited
}

// clockTick is the unit of processor time in /proc: USER_HZ, a hundredth of a second on all of Go's Linux ports (time(7)).
const clockTick = 10 * time.Millisecond

// use adds up what processes of the tree take, reaps the dead, and notes when one has all the open files it may have.
//
// Memory that processes share counts more than once in what the kernel keeps for each. Only when that passes the limit it
// is asked for each one's share, for which it walks through all of it.
func (t *tree) use(pids []int, l Limits) usage {
	u := usage{cpuTime: t.group.cpuTime(), refused: t.group.refusedProcesses()}
	for _, pid := range pids {
		if l.Processes > 0 && u.processes > l.Processes {
			return u // the rest is no more of interest, and there may be thousands
		}
		status := readFields(pid, "status")
		switch {
		case status == nil:
		case status.is("State", "Z"):
			reap(pid, t.keep)
		default:
			u.processes += status.number("Threads")
			u.memory += Size(status.number("RssAnon")+status.number("RssShmem")+status.number("VmSwap")) << 10
			if l.OpenFiles > 0 && status.number("FDSize") >= l.OpenFiles && isFull(pid, l.OpenFiles) {
				t.full.Store(true)
			}
			if t.group == nil && l.CPUTime > 0 {
				u.cpuTime += processorTime(pid)
			}
		}
	}
	if t.group.boundsMemory() || l.Memory == 0 {
		u.memory = 0
		return u
	}
	files := tempFiles(pids)
	if u.memory+files > l.Memory {
		u.memory = 0
		for _, pid := range pids {
			share := readFields(pid, "smaps_rollup")
			u.memory += Size(share.number("Pss_Anon")+share.number("Pss_Shmem")+share.number("SwapPss")) << 10
		}
	}
	u.memory += files
	return u
}

// tempFiles is what the files take that the command keeps in memory: those in each tmpfs that it has to itself.
func tempFiles(pids []int) (sum Size) {
	if len(pids) == 0 {
		return 0
	}
	for _, path := range []string{"/tmp", "/dev/shm", "/run"} {
		within := procPath(pids[len(pids)-1], "root") + path // the youngest is behind the walls
		var theirs, ours unix.Stat_t
		var fs unix.Statfs_t
		if unix.Stat(within, &theirs) != nil || unix.Stat(path, &ours) != nil || theirs.Dev == ours.Dev || unix.Statfs(within, &fs) != nil {
			continue
		}
		if fs.Type == unix.TMPFS_MAGIC {
			sum += Size(fs.Blocks-fs.Bfree) * Size(fs.Bsize)
		}
	}
	return sum
}

// fields are the lines of a file in /proc: a name, a colon, and a value.
type fields []byte

func readFields(pid int, file string) fields {
	data := readProc(pid, file)
	if data == nil {
		return nil
	}
	return append([]byte("\n"), data...)
}

func (f fields) value(name string) []byte {
	_, after, _ := bytes.Cut(f, []byte("\n"+name+":"))
	line, _, _ := bytes.Cut(after, []byte("\n"))
	return bytes.TrimSpace(line)
}

func (f fields) is(name, value string) bool { return bytes.HasPrefix(f.value(name), []byte(value)) }

func (f fields) number(name string) int64 {
	first, _, _ := bytes.Cut(f.value(name), []byte(" "))
	n, _ := strconv.ParseInt(string(first), 10, 64)
	return n
}

// isFull says whether a process can open no further file, or no pipe, which takes two. The limit is on their numbers. Shells
// leave some low ones free, and put single files at the highest, so most numbers must be taken, and the last.
func isFull(pid int, limit int64) bool {
	dir, err := os.Open(procPath(pid, "fd"))
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

// processorTime is what a process and those of its children it waited for have taken: fields 14 to 17 of
// proc_pid_stat(5).
func processorTime(pid int) (sum time.Duration) {
	numbers := statFields(pid)
	for i := 14; i <= 17 && len(numbers) > i-3; i++ {
		ticks, _ := strconv.ParseInt(numbers[i-3], 10, 64)
		sum += time.Duration(ticks) * clockTick
	}
	return sum
}
