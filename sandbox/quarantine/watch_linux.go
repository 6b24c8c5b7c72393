package quarantine

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// checkEvery is how often names are listed and guarded files compared although nothing was reported. The kernel does
// not report changes by a memory map, by another name of the file, or deep in a folder. Some file systems report none.
// The time between is at least checkShare times what it takes.
const (
	checkEvery = 50 * time.Millisecond
	checkShare = 20
)

// watch reports names that appear in directories (inotify(7)).
type watch struct {
	fd   int
	top  int32 // watch descriptor of the top directory
	mask uint32
}

func newWatch(top *os.Root, guards bool) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, watchError(err)
	}
	w := &watch{fd: fd, mask: unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_MOVED_FROM}
	if guards {
		w.mask |= unix.IN_CLOSE_WRITE | unix.IN_ATTRIB
	}
	w.top, err = w.add(top)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return w, nil
}

func (w *watch) add(dir *os.Root) (int32, error) {
	var wd int
	err := withDescriptor(dir, func(fd int) (err error) {
		wd, err = unix.InotifyAddWatch(w.fd, fmt.Sprintf("/proc/self/fd/%d", fd), w.mask|unix.IN_ONLYDIR)
		return err
	})
	if err != nil {
		return 0, watchError(err)
	}
	return int32(wd), nil
}

func watchError(err error) error {
	return fmt.Errorf("inotify: %w (fs.inotify.max_user_instances and max_user_watches of sysctl are its limits)", err)
}

// event is a name that has changed in a directory.
type event struct {
	directory int32
	name      string
	appeared  bool
}

// wait returns the next events, or none after a time.
func (w *watch) wait(buffer []byte, most time.Duration) (events []event) {
	fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, int(most.Milliseconds())); n == 0 || err != nil {
		return nil
	}
	n, _ := unix.Read(w.fd, buffer) // what an error hides is found by listing
	for at := 0; at+unix.SizeofInotifyEvent <= n; {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&buffer[at]))
		at += unix.SizeofInotifyEvent
		name := strings.TrimRight(string(buffer[at:at+int(e.Len)]), "\x00")
		at += int(e.Len)
		events = append(events, event{e.Wd, name, e.Mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0})
	}
	return events
}

// run handles events until the watch is closed. As root, its thread has real-time priority, so that a busy machine does
// not delay it.
func (q *Quarantine) run(w *watch) {
	runtime.LockOSThread() // never unlocked, so the thread ends with the watch
	unix.SchedSetAttr(0, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}, 0)
	defer unix.Close(w.fd)
	buffer := make([]byte, 64<<10)
	interval := checkEvery
	for open := true; open; {
		events := w.wait(buffer, interval)
		q.mu.Lock()
		if open = q.watch == w; open {
			q.handle(events)
			interval = q.interval
		}
		q.mu.Unlock()
	}
}

func (q *Quarantine) handle(events []event) {
	q.guardExpected() // first, so that a late event about an expected name does not take it
	began := time.Now()
	isDue := began.Sub(q.checked) >= q.interval
	if isDue {
		q.scan()
		q.stowSettled()
	}
	changed := isDue
	for _, e := range events {
		if e.directory != q.watch.top {
			changed = changed || q.concernsGuard(e)
			continue
		}
		name := q.spelled(e.name)
		switch {
		case !q.isWatched(name):
		case e.appeared && !q.known[name]:
			q.appeared(name)
		default:
			changed = true
		}
	}
	if changed {
		q.check(true)
	}
	if isDue {
		q.checked = time.Now()
		q.interval = max(checkEvery, checkShare*q.checked.Sub(began))
	}
}
