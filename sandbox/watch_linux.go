package sandbox

import (
	"maps"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/limit"
	"pocketcoder/sandbox/proc"
	"pocketcoder/sandbox/wire"
)

// How often the processes of all commands are sampled: every sampleEvery while a command is new or uses a quarter of a
// limit, otherwise every sampleAtLeast. If sampling takes more than 1/sampleShare of one processor's time, the interval
// grows, to sampleAtLeast at most.
const (
	sampleEvery   = 50 * time.Millisecond
	sampleAtLeast = 250 * time.Millisecond
	sampleShare   = 50
)

// addTree adds the tree of a command that is about to start, and watches it.
func (w *Worker) addTree(exec string, l label, limits limit.Limits) (*tree, error) {
	group, err := w.groups.Make(l.serial(), limits)
	if err != nil {
		return nil, err
	}
	t := &tree{label: l, exec: exec, limits: limits, sampler: limit.Sampler{Group: group},
		exceeded: make(chan wire.Reason, 1), isShell: w.isShell, release: func() {}}
	w.mu.Lock()
	w.trees[l.serial()] = t
	w.mu.Unlock()
	select {
	case w.treeAdded <- struct{}{}:
	default: // the watch runs anyway
	}
	return t, nil
}

// watch checks the trees while there are any. As root, its thread has real-time priority. Beside the thousand processes
// of a fork bomb it would otherwise get a thousandth of the processor time.
func (w *Worker) watch() {
	runtime.LockOSThread() // never unlocked, so the thread ends with the watch
	unix.SchedSetAttr(0, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}, 0)
	for {
		select {
		case <-w.stop:
			return
		case <-w.treeAdded:
		}
		pause := sampleEvery
		for left := 1; left > 0; {
			if w.pause(pause) {
				pause = sampleEvery
			}
			if isClosed(w.stop) {
				return
			}
			began := time.Now()
			var near bool
			left, near = w.sample()
			if pause *= 2; near {
				pause = sampleEvery
			}
			pause = min(max(pause, sampleShare*time.Since(began)), sampleAtLeast)
		}
	}
}

// pause waits, and reports whether the start of a command has ended the wait.
func (w *Worker) pause(d time.Duration) bool {
	for ; d > 0 && !isClosed(w.stop); d -= sampleEvery {
		sleepInKernel(sampleEvery)
		select {
		case <-w.treeAdded:
			return true
		default:
		}
	}
	return false
}

// sleepInKernel sleeps in the kernel. Go's timers fire on another thread, which a fork bomb may keep from running.
func sleepInKernel(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	unix.Nanosleep(&t, nil) // a signal may cut it short
}

// sample checks all processes of the machine once. It reaps ended daemons, checks the limits of each tree, and removes
// trees without processes. It returns the number of trees that are left, and whether one of them is close to a limit.
func (w *Worker) sample() (left int, near bool) {
	w.mu.Lock()
	trees := maps.Clone(w.trees)
	w.mu.Unlock()
	found := map[uint32][]int{}
	for pid := range proc.All() {
		var tag unix.Rlimit
		if unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &tag) == nil && w.id.owns(tag.Cur) {
			found[uint32(tag.Cur)] = append(found[uint32(tag.Cur)], pid)
		}
	}
	for serial, t := range trees {
		over := t.ended.Load() // first, so that a tree that ends meanwhile is checked once more
		if !over && !t.started.Load() {
			continue // before it executes the shell, its resources are the worker's
		}
		pids := append(found[serial], t.sampler.Group.Processes()...)
		slices.Sort(pids)
		use := t.sampler.Sample(slices.Compact(pids), t.limits, func(pid int) { reap(pid, t.isShell) })
		quarter := limit.Limits{Memory: t.limits.Memory / 4, Processes: t.limits.Processes / 4, CPUTime: t.limits.CPUTime / 4}
		near = near || quarter.Exceeded(use) != wire.Exited
		if reason := t.limits.Exceeded(use); reason != wire.Exited {
			w.stopTree(t, reason)
		}
		if over && use.Processes == 0 && t.sampler.Group.Remove() {
			w.mu.Lock()
			delete(w.trees, serial)
			w.mu.Unlock()
			t.session.Close()
			t.release()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.trees), near
}

// stopTree kills a command that exceeds a limit, or its daemons after its end.
func (w *Worker) stopTree(t *tree, reason wire.Reason) {
	select {
	case t.exceeded <- reason: // before the kill, so that Exec does not report an ordinary end
	default:
	}
	t.kill()
	w.config.Log.Info("killed command over a limit", "exec", t.exec, "limit", reason, "ended", t.ended.Load())
}
