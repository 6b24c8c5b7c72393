package limit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	groupPrefix = "pocketcoder-"
	ownGroup    = groupPrefix + "self" // for the worker's own processes, if its cgroup becomes a parent
)

// Groups are the cgroups of a worker's commands, one for each command, below the worker's own cgroup (version 2). A
// process cannot leave its cgroup unless it may write to the cgroup file system, which an isolated command does not
// see. So all processes of a command are known and can be killed at once, and their processor time is exact.
//
// Memory and processes are limited too if the worker's cgroup can enable these controllers: if systemd delegated it
// (Delegate=yes), or if the worker is alone in it, as in a container. Root may also create cgroups at the top, where
// systemd enables both controllers.
type Groups struct {
	Dir     string // <the worker's cgroup>/pocketcoder-<worker>
	bounded bool   // memory.max and pids.max are set
}

// Worker names the worker that Groups are made for.
type Worker struct {
	Marker    string                   // unique on this machine
	Workspace string                   // its workspace
	IsDead    func(marker string) bool // reports whether a worker has ended
}

// OpenGroups creates the directory for a worker's cgroups, and removes those of dead workers. It returns nil if no
// cgroup can be created. how describes for people what enforces the limits, and why not a cgroup.
func OpenGroups(w Worker) (g *Groups, how string) {
	own, top, err := ownCgroup()
	if err != nil {
		return nil, "sampling, because there is no cgroup: " + err.Error()
	}
	for _, parent := range []string{own, top} {
		w.removeDead(parent)
	}
	name := w.groupName()
	g, err = makeGroups(own, name, prepareControllers)
	if g != nil && g.bounded {
		return g, "cgroup " + g.Dir
	}
	atTop, _ := makeGroups(top, name, hasControllers)
	if atTop != nil && atTop.bounded {
		g.Close()
		return atTop, "cgroup " + atTop.Dir
	}
	atTop.Close()
	return g, fmt.Sprintf("sampling, because no cgroup bounds memory and processes: %v", err)
}

// makeGroups creates the directory in parent. The Groups are bounded if controllers returns no error. The error may
// come with usable Groups that are not bounded.
func makeGroups(parent, name string, controllers func(parent string) error) (*Groups, error) {
	g := &Groups{Dir: filepath.Join(parent, name)}
	if err := os.Mkdir(g.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make cgroup: %w", err)
	}
	if _, err := os.Stat(filepath.Join(g.Dir, "cgroup.kill")); err != nil {
		g.Close()
		return nil, errors.New("cgroups cannot be killed: Linux 5.14 is needed")
	}
	err := controllers(parent)
	if err == nil {
		err = enableControllers(g.Dir)
	}
	g.bounded = err == nil
	return g, err
}

// ownCgroup returns the directory of the worker's own cgroup and the top directory of its mount (cgroups(7): the line
// 0::/path of /proc/self/cgroup, and the mount in /proc/self/mountinfo).
func ownCgroup() (own, top string, err error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", "", err
	}
	path := ""
	for line := range strings.Lines(string(data)) {
		if p, found := strings.CutPrefix(strings.TrimSpace(line), "0::"); found {
			path = p
		}
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", "", err
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); path != "" && lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		mount := strings.Fields(before)
		if len(mount) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		below, err := filepath.Rel(mount[3], path)
		if err != nil || !filepath.IsLocal(below) {
			continue
		}
		if filepath.Base(below) == ownGroup {
			below = filepath.Dir(below)
		}
		return filepath.Join(mount[4], below), mount[4], nil
	}
	return "", "", errors.New("no cgroup of version 2 is mounted")
}

// controllers are needed to limit a command.
var controllers = []string{"memory", "pids"}

func listsControllers(dir, file string) error {
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return err
	}
	for _, needed := range controllers {
		if !slices.Contains(strings.Fields(string(data)), needed) {
			return fmt.Errorf("cgroup %s has no %s controller", dir, needed)
		}
	}
	return nil
}

// hasControllers returns an error if a cgroup does not enable the controllers for its children.
func hasControllers(dir string) error { return listsControllers(dir, "cgroup.subtree_control") }

func enableControllers(dir string) error {
	return writeGroup(dir, "cgroup.subtree_control", "+"+strings.Join(controllers, " +"))
}

// prepareControllers enables the controllers for the commands' cgroups. A cgroup with enabled controllers may hold no
// processes, so its processes move into a child: the worker's own, or those of a service to which systemd delegated the
// cgroup.
func prepareControllers(own string) error {
	if err := listsControllers(own, "cgroup.controllers"); err != nil {
		return err
	}
	err := enableControllers(own)
	if errors.Is(err, unix.EBUSY) {
		if err = moveToOwnGroup(own); err == nil {
			err = enableControllers(own)
		}
	}
	return err
}

// checkMovable returns an error if a cgroup holds processes that this process may not move.
func checkMovable(dir string, pids []int) error {
	delegated := make([]byte, 1)
	if n, _ := unix.Getxattr(dir, "user.delegate", delegated); (n != 1 || delegated[0] != '1') &&
		!slices.Equal(pids, []int{os.Getpid()}) {
		return fmt.Errorf("cgroup %s holds processes of others and is not delegated", dir)
	}
	return nil
}

func moveToOwnGroup(dir string) error {
	pids := cgroupProcesses(dir)
	if err := checkMovable(dir, pids); err != nil {
		return err
	}
	into := filepath.Join(dir, ownGroup)
	if err := os.Mkdir(into, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for _, pid := range pids {
		err := writeGroup(into, "cgroup.procs", strconv.Itoa(pid))
		if err != nil && !errors.Is(err, unix.ESRCH) { // the process may have ended
			return fmt.Errorf("move process %d into %s: %w", pid, into, err)
		}
	}
	return nil
}

// Probe returns why no cgroup can limit commands of this process, nil if one can. It changes nothing.
func Probe() error {
	own, top, err := ownCgroup()
	if err != nil {
		return err
	}
	if unix.Access(top, unix.W_OK) == nil && hasControllers(top) == nil {
		return nil
	}
	if err := listsControllers(own, "cgroup.controllers"); err != nil {
		return err
	}
	if err := unix.Access(own, unix.W_OK); err != nil {
		return fmt.Errorf("write to cgroup %s: %w", own, err)
	}
	if hasControllers(own) == nil {
		return nil
	}
	return checkMovable(own, cgroupProcesses(own))
}

// Close kills the processes in the worker's cgroups and removes the cgroups.
func (g *Groups) Close() {
	if g != nil {
		removeGroup(g.Dir)
	}
}

// removeGroup kills all processes in a cgroup and its children, and removes it. Dead processes leave it after a moment.
func removeGroup(dir string) {
	writeGroup(dir, "cgroup.kill", "1")
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		removeBelow(dir)
		if err := os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
	}
}

// removeBelow removes the empty cgroups in dir, deepest first.
func removeBelow(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeBelow(filepath.Join(dir, e.Name()))
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// groupName returns the name of a worker's cgroups, which identifies the worker and its workspace.
func (w Worker) groupName() string {
	hash := fnv.New32a()
	hash.Write([]byte(w.Workspace))
	return fmt.Sprintf("%s%s-%08x", groupPrefix, strings.ReplaceAll(w.Marker, "/", "-"), hash.Sum32())
}

// removeDead removes the cgroups of dead workers. It kills processes only if the dead worker had the same workspace;
// else it removes only empty cgroups.
func (w Worker) removeDead(parent string) {
	entries, _ := os.ReadDir(parent) // without permission to list, there is none to remove
	for _, e := range entries {
		if ours, _ := filepath.Match(groupPrefix+"*-*-*-*-*", e.Name()); !ours {
			continue
		}
		dir := filepath.Join(parent, e.Name())
		parts := strings.Split(strings.TrimPrefix(e.Name(), groupPrefix), "-")
		left := Worker{Marker: strings.Join(parts[:len(parts)-1], "/"), Workspace: w.Workspace}
		switch {
		case !w.IsDead(left.Marker):
		case e.Name() == left.groupName():
			removeGroup(dir)
		default:
			removeBelow(dir)
			os.Remove(dir)
		}
	}
}

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
