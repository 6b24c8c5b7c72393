package limit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Group is the cgroup of one command. A nil Group means that there is none.
type Group struct {
	dir     string
	file    *os.File // dir, for starting processes in it
	bounded bool
}

// Make creates the cgroup of one command.
func (g *Groups) Make(serial uint32, l Limits) (*Group, error) {
	if g == nil {
		return nil, nil
	}
	dir := filepath.Join(g.Dir, strconv.FormatUint(uint64(serial), 10))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make cgroup: %w", err)
	}
	file, err := os.Open(dir)
	if err != nil {
		os.Remove(dir)
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	c := &Group{dir, file, g.bounded}
	if g.bounded {
		if err := c.bound(l); err != nil {
			c.Remove()
			return nil, fmt.Errorf("bound cgroup: %w", err)
		}
	}
	return c, nil
}

// bound sets the limits of the controllers (the kernel's Documentation/admin-guide/cgroup-v2.rst). It disables swap,
// which would slow down the command and the whole machine.
func (g *Group) bound(l Limits) error {
	if l.Memory > 0 {
		bytes := strconv.FormatInt(int64(l.Memory), 10)
		if err := errors.Join(writeGroup(g.dir, "memory.max", bytes),
			writeGroup(g.dir, "memory.oom.group", "1")); err != nil {
			return err
		}
		// the file is missing on a kernel without swap
		if err := writeGroup(g.dir, "memory.swap.max", "0"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if l.Processes > 0 {
		return writeGroup(g.dir, "pids.max", strconv.FormatInt(l.Processes, 10))
	}
	return nil
}

// Attributes returns the attributes that start a process in the cgroup.
func (g *Group) Attributes() *syscall.SysProcAttr {
	if g == nil {
		return &syscall.SysProcAttr{}
	}
	return &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(g.file.Fd())}
}

func (g *Group) Processes() []int {
	if g == nil {
		return nil
	}
	return cgroupProcesses(g.dir)
}

// Kill kills all processes of the cgroup, including those that start meanwhile.
func (g *Group) Kill() {
	if g != nil {
		writeGroup(g.dir, "cgroup.kill", "1")
	}
}

// Remove removes the cgroup if no process is left in it, and reports whether it is gone.
func (g *Group) Remove() bool {
	if g == nil {
		return true
	}
	removeBelow(g.dir)
	if err := os.Remove(g.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false
	}
	g.file.Close()
	return true
}

// cpuTime returns the processor time of all processes, including ended ones.
func (g *Group) cpuTime() time.Duration {
	if g == nil {
		return 0
	}
	return time.Duration(g.count("cpu.stat", "usage_usec")) * time.Microsecond
}

// boundsMemory reports whether the kernel enforces the memory limit.
func (g *Group) boundsMemory() bool { return g != nil && g.bounded }

// killedForMemory reports whether the kernel has killed a process because of the memory limit.
func (g *Group) killedForMemory() bool {
	// oom_kill also counts processes that the kernel killed because the machine had no memory left.
	return g != nil && g.bounded && g.count("memory.events", "oom_kill") > 0 && g.count("memory.events", "oom") > 0
}

// refusedProcesses reports whether the kernel has refused a process because of the process limit.
func (g *Group) refusedProcesses() bool {
	return g != nil && g.bounded && g.count("pids.events", "max") > 0
}

// writeGroup writes to an existing file of a cgroup.
func writeGroup(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}

// count returns the number after a name in a file of name-number lines.
func (g *Group) count(file, name string) int64 {
	data, _ := os.ReadFile(filepath.Join(g.dir, file))
	for line := range bytes.Lines(data) {
		if n, found := bytes.CutPrefix(line, []byte(name+" ")); found {
			count, _ := strconv.ParseInt(string(bytes.TrimSpace(n)), 10, 64)
			return count
		}
	}
	return 0
}

// cgroupProcesses lists the processes in a cgroup, without those in its children.
func cgroupProcesses(dir string) (pids []int) {
	data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for _, line := range bytes.Fields(data) {
		if pid, err := strconv.Atoi(string(line)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}
