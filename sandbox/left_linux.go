package sandbox

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/proc"
	"pocketcoder/sandbox/wire"
)

// listLeft returns the processes of the tree that run although the shell has exited, or nil. In bubblewrap they end
// with its monitor, so the monitor must wait.
func (t *tree) listLeft() *wire.Left {
	if len(t.programs()) == 0 {
		return nil
	}
	time.Sleep(settleTime)
	return wire.NewLeft(t.programs(), !t.hasMonitor)
}

// programs returns the name of the program of each live process of the tree, without the shell and bubblewrap.
func (t *tree) programs() (names []string) {
	for _, pid := range t.processes() {
		if pid == t.shell || isDead(pid) || t.isInit(pid) {
			continue
		}
		if name := proc.Program(pid); name != "" { // it has not ended meanwhile
			names = append(names, name)
		}
	}
	return names
}

// processes lists the processes of the tree, dead ones too.
func (t *tree) processes() []int {
	if t.sampler.Group == nil {
		return t.tagged()
	}
	return t.sampler.Group.Processes()
}

// tagged lists the processes with the tag of the tree. marks would take longer: it reads the environment of each
// process without the tag.
func (t *tree) tagged() (pids []int) {
	for pid := range proc.All() {
		var tag unix.Rlimit
		if pid != os.Getpid() && unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &tag) == nil && tag.Cur == t.tag {
			pids = append(pids, pid)
		}
	}
	return pids
}

func isDead(pid int) bool {
	state, _ := proc.State(pid)
	return state == "" || state == "Z" || state == "X"
}

// isInit reports whether a process is the first one in the namespace of bubblewrap. It is the only child of the
// monitor. Orphans become its children.
func (t *tree) isInit(pid int) bool {
	fields := proc.Stat(pid)
	return t.hasMonitor && len(fields) > 1 && fields[1] == strconv.Itoa(t.shell)
}
