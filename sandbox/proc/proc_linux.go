package proc

import (
	"bytes"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// All returns the pids of all processes in ascending order. It reads them in pieces, so processes that start meanwhile
// come last.
func All() iter.Seq[int] {
	return func(yield func(int) bool) {
		dir, err := os.Open("/proc")
		if err != nil {
			return
		}
		defer dir.Close()
		for {
			names, err := dir.Readdirnames(64)
			for _, name := range names {
				if pid, err := strconv.Atoi(name); err == nil && !yield(pid) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}

// State returns a process's state letter and its start time in clock ticks since boot (proc_pid_stat(5), fields 3 and
// 22). Both are empty if there is no such process. The kernel also reports Z if the first thread has ended and other
// threads (field 20) run. State then returns S, because the process is not dead.
func State(pid int) (state, start string) {
	fields := Stat(pid)
	if len(fields) < 20 {
		return "", ""
	}
	if state = fields[0]; state == "Z" && fields[17] != "0" && fields[17] != "1" {
		state = "S"
	}
	return state, fields[19]
}

// Stat returns the fields of proc_pid_stat(5) from the third on.
func Stat(pid int) []string {
	data := read(pid, "stat")
	return strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:])) // the name before may hold anything
}

// Program returns the name of the program that a process runs: the last part of the path in its first argument. Some
// programs put a title there, and some give their first thread another name, which is used only without arguments.
func Program(pid int) string {
	path, _, _ := bytes.Cut(read(pid, "cmdline"), []byte{0})
	name, _, _ := strings.Cut(filepath.Base(string(path)), " ")
	if name = strings.TrimSuffix(strings.TrimPrefix(name, "-"), ":"); name != "" && name != "." {
		return name
	}
	return string(bytes.TrimSpace(read(pid, "comm")))
}

// clockTick is the unit of processor time in /proc: USER_HZ, a hundredth of a second on all of Go's Linux ports
// (time(7)).
const clockTick = 10 * time.Millisecond

// ProcessorTime returns the processor time of a process and of the children that it waited for: fields 14 to 17 of
// proc_pid_stat(5).
func ProcessorTime(pid int) (sum time.Duration) {
	fields := Stat(pid)
	for i := 14; i <= 17 && i-3 < len(fields); i++ {
		ticks, _ := strconv.ParseInt(fields[i-3], 10, 64)
		sum += time.Duration(ticks) * clockTick
	}
	return sum
}

// LivingThread returns a thread of the process that runs. The files in /proc of a first thread that has ended say
// nothing about the process.
func LivingThread(pid int) (thread int) {
	if fields := Stat(pid); len(fields) == 0 || fields[0] != "Z" {
		return pid
	}
	threads, _ := os.ReadDir(Path(pid, "task"))
	for _, t := range threads {
		if thread, _ = strconv.Atoi(t.Name()); thread != pid {
			return thread
		}
	}
	return pid
}

// Environ returns the environment with which a process was started, each variable between NULs. It is empty if it may
// not be read.
func Environ(pid int) []byte {
	data, _ := os.ReadFile(Path(pid, "environ"))
	return append([]byte{0}, data...)
}

// Variable returns the value of a variable of an environment as Environ has it.
func Variable(environ []byte, name string) string {
	_, after, _ := bytes.Cut(environ, []byte("\x00"+name+"="))
	value, _, _ := bytes.Cut(after, []byte{0})
	return string(value)
}

// Lines are a file of /proc whose lines are a name, a colon, and a value.
type Lines []byte

// ReadLines reads such a file; nil when the process has ended.
func ReadLines(pid int, file string) Lines {
	data := read(pid, file)
	if data == nil {
		return nil
	}
	return append([]byte("\n"), data...)
}

func (l Lines) Value(name string) string {
	_, after, _ := bytes.Cut(l, []byte("\n"+name+":"))
	line, _, _ := bytes.Cut(after, []byte("\n"))
	return string(bytes.TrimSpace(line))
}

// Number returns the number with which the value of a name begins.
func (l Lines) Number(name string) int64 {
	first, _, _ := strings.Cut(l.Value(name), " ")
	n, _ := strconv.ParseInt(first, 10, 64)
	return n
}

// read reads a file of a process; nothing when that has ended. It takes half as long as os.ReadFile, which prepares to
// wait for what may never come.
func read(pid int, file string) []byte {
	fd, err := unix.Open(Path(pid, file), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	data := make([]byte, 0, 4096) // a status takes 1,500
	for {
		n, err := unix.Read(fd, data[len(data):cap(data)])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return data
		}
		data = slices.Grow(data[:len(data)+n], 1024)
	}
}

func Path(pid int, file string) string { return "/proc/" + strconv.Itoa(pid) + "/" + file }
