package sandbox

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"sync"
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
func (t *tree) use(pids []int, l Limits) usage {
	u := usage{cpuTime: t.group.cpuTime(), refused: t.group.refusedProcesses()}
	var private, shared Size
	took := map[process]times{}
	for i, pid := range pids { // rising, as spending needs it
		if l.Processes > 0 && u.processes > l.Processes {
			return u // the rest is no more of interest, and there may be thousands
		}
		if t.group == nil && l.CPUTime > 0 {
			if p, its := processorTime(pid); p.pid != 0 {
				took[p] = its
			}
		}
		status := readFields(pid, "status")
		if isZombie := status.is("State", "Z"); isZombie && status.number("Threads") <= 1 {
			reap(pid, t.keep)
			continue
		} else if isZombie {
			pids[i] = speaker(pid)
			status = readFields(pids[i], "status")
		}
		if status != nil {
			u.processes += status.number("Threads")
			private += Size(status.number("RssAnon")+status.number("VmSwap")) << 10
			shared += Size(status.number("RssShmem")) << 10
			if l.OpenFiles > 0 && status.number("FDSize") >= l.OpenFiles && isFull(pids[i], l.OpenFiles) {
				t.full.Store(true)
			}
		}
	}
	if t.group == nil {
		u.cpuTime = t.spent.add(took)
	}
	if !t.group.boundsMemory() && l.Memory > 0 {
		u.memory = memory(pids, private, shared, l.Memory)
	}
	return u
}

// memory is what processes keep in memory, of which they have mapped this much that is private and shared.
//
// Memory that they share counts more than once in what the kernel keeps for each. Only when that passes the limit it is
// asked for each one's share, for which it walks through all of it. Which part of an unlinked file is mapped it does not
// tell, so only the larger of those files and shared memory counts: some keep their whole heap in a mapped one.
func memory(pids []int, private, shared, limit Size) Size {
	temp, unlinked := tempFiles(pids), unlinkedFiles(pids)
	if private+max(shared, unlinked)+temp > limit {
		private, shared = 0, 0
		for _, pid := range pids {
			share := readFields(pid, "smaps_rollup")
			private += Size(share.number("Pss_Anon")+share.number("SwapPss")) << 10
			shared += Size(share.number("Pss_Shmem")) << 10
		}
	}
	return private + max(shared, unlinked) + temp
}

// tempDirs are where a tmpfs is usual.
var tempDirs = []string{"/tmp", "/dev/shm", "/run"}

// tempFiles is what the files take that the command keeps in memory: those in each tmpfs that it has to itself.
func tempFiles(pids []int) (sum Size) {
	walled := walled(pids)
	for _, path := range tempDirs {
		within := procPath(walled, "root") + path
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

// walled is one of the processes that see other mounts than ours, as all do behind walls that have any: bubblewrap's outside of
// them does not, and the dead see none. There is no process 0.
func walled(pids []int) int {
	ours, _ := os.Readlink("/proc/self/ns/mnt")
	for _, pid := range slices.Backward(pids) {
		if theirs, err := os.Readlink(procPath(pid, "ns/mnt")); err == nil && theirs != ours {
			return pid
		}
	}
	return 0
}

// unlinkedFiles is what the files without a name take that processes have open in memory: those of memfd_create(2), and
// removed ones in a tmpfs that the machine shares. It misses what is mapped and closed, or open only in a thread with
// descriptors of its own.
func unlinkedFiles(pids []int) (sum Size) {
	type inode struct{ device, number uint64 }
	seen := map[inode]bool{}
	for _, pid := range pids {
		dir, err := os.Open(procPath(pid, "fd"))
		if err != nil {
			continue
		}
		names, _ := dir.Readdirnames(-1)
		for _, name := range names {
			var s unix.Statx_t // without asking the file system, which may be a command's own (FUSE) and never answer
			if unix.Statx(int(dir.Fd()), name, unix.AT_STATX_DONT_SYNC, unix.STATX_NLINK|unix.STATX_INO|unix.STATX_BLOCKS, &s) != nil {
				continue
			}
			file := inode{unix.Mkdev(s.Dev_major, s.Dev_minor), s.Ino}
			if s.Nlink == 0 && !seen[file] && slices.Contains(memoryDevices(), file.device) {
				seen[file] = true
				sum += Size(s.Blocks) * 512
			}
		}
		dir.Close()
	}
	return sum
}

// memoryDevices are the file systems in memory that commands share with the machine: that of memfd_create(2), which is
// mounted nowhere, and each tmpfs.
var memoryDevices = sync.OnceValue(func() (devices []uint64) {
	var s unix.Stat_t
	if fd, err := unix.MemfdCreate("", unix.MFD_CLOEXEC); err == nil {
		if unix.Fstat(fd, &s) == nil {
			devices = append(devices, s.Dev)
		}
		unix.Close(fd)
	}
	for _, path := range tempDirs {
		var fs unix.Statfs_t
		if unix.Statfs(path, &fs) == nil && fs.Type == unix.TMPFS_MAGIC && unix.Stat(path, &s) == nil {
			devices = append(devices, s.Dev)
		}
	}
	return devices
})

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

// process is one for all times: its pid may be another's once it is dead.
type process struct {
	pid   int
	start string
}

// times are the processor time of a process, and that of the children it waited for, all they waited for included.
type times struct{ own, waited time.Duration }

// spending adds up the processor time of a tree from look to look, that of the dead included.
//
// A dead process's time moves to who waited for it, and is lost where nobody did: where SIGCHLD is ignored or its parent
// died first. So of the waited-for time only that is new which is more than what was seen of processes that are now gone.
// One may have died after its parent was looked at, and then shows there only in the next look. That is never more than the
// tree took. It misses what nobody waited for after the last look at it, so all of what lives shorter than from one look to
// the next.
type spending struct {
	sum  time.Duration
	seen map[process]times // in the last look
	owed time.Duration     // of those gone by the last look, what had not shown with who may have waited for them
}

// add takes what one look saw, which read parents before their children, and returns the sum of all.
func (s *spending) add(took map[process]times) time.Duration {
	var waited, gone time.Duration
	for p, now := range took {
		last, known := s.seen[p]
		s.sum += now.own - last.own
		if waitedFor := now.waited - last.waited; known {
			waited += waitedFor
		} else {
			s.sum += waitedFor // its children are younger than the last look
		}
	}
	for p, last := range s.seen {
		if _, lives := took[p]; !lives {
			gone += last.own + last.waited
		}
	}
	fresh := waited - s.owed - gone
	s.sum += max(fresh, 0)
	s.owed = min(max(-fresh, 0), gone)
	s.seen = took
	return s.sum
}

// processorTime is what a process took: fields 14 to 17 of proc_pid_stat(5). There is no process 0.
func processorTime(pid int) (process, times) {
	fields := statFields(pid)
	if len(fields) < 20 {
		return process{}, times{}
	}
	ticks := func(field int) time.Duration {
		n, _ := strconv.ParseInt(fields[field-3], 10, 64)
		return time.Duration(n) * clockTick
	}
	return process{pid, fields[19]}, times{own: ticks(14) + ticks(15), waited: ticks(16) + ticks(17)}
}
