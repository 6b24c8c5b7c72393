package seccomp

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Supervise installs a filter with Options.SuperviseModes on the calling thread and its later children. The kernel
// then sends each chmod of these processes to this process. This process opens the file, calls mayChange with its
// resolved path, and changes the mode itself. So a command cannot replace the file between the check and the change.
//
// Supervise also checks the chmod of an open file, because a command can open files that it may only read.
func (f Filter) Supervise(mayChange func(path string) bool) error {
	listener, err := f.installWithListener()
	if err != nil {
		return err
	}
	go serveModes(listener, mayChange)
	return nil
}

// installWithListener installs the filter and returns the descriptor that receives the notifications.
func (f Filter) installWithListener() (int, error) {
	fprog := unix.SockFprog{Len: uint16(len(f)), Filter: (*unix.SockFilter)(unsafe.Pointer(&f[0]))} // same layout
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return -1, fmt.Errorf("set seccomp filter with a listener: %w", errno)
	}
	unix.CloseOnExec(int(fd))
	return int(fd), nil
}

// notice is struct seccomp_notif, and reply is struct seccomp_notif_resp: seccomp_unotify(2).
type (
	notice struct {
		id         uint64
		pid, flags uint32
		call       int32
		arch       uint32
		ip         uint64
		args       [6]uint64
	}
	reply struct {
		id    uint64
		value int64
		errno int32
		flags uint32
	}
)

// serveModes answers notifications until no process uses the filter.
func serveModes(listener int, mayChange func(path string) bool) {
	defer unix.Close(listener)
	for {
		ready := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if ready[0].Revents&unix.POLLIN == 0 {
			if ready[0].Revents != 0 {
				return
			}
			continue
		}
		var n notice
		if ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)) != nil {
			continue // the caller was killed
		}
		r := reply{id: n.id}
		if err := changeMode(listener, n, mayChange); err != nil {
			errno := unix.EACCES
			errors.As(err, &errno) // otherwise the caller has ended, or this process may not read its memory
			r.errno = -int32(errno)
		}
		_ = ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)) // it fails if the caller was killed
	}
}

func ioctl(fd int, request uint, data unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(data)); errno != 0 {
		return errno
	}
	return nil
}

// changeMode changes the mode of the file that a chmod names, if mayChange allows it.
func changeMode(listener int, n notice, mayChange func(path string) bool) error {
	c := modeChangeOf(n)
	file, err := c.open(listener, n)
	if err != nil {
		return err
	}
	defer unix.Close(file)
	at := "/proc/self/fd/" + strconv.Itoa(file)
	path, err := os.Readlink(at)
	if err != nil {
		return err
	}
	if !mayChange(path) {
		return unix.EACCES
	}
	return unix.Chmod(at, c.mode)
}

// modeChange holds the arguments of a chmod.
type modeChange struct {
	dir   int     // AT_FDCWD or a descriptor of the caller
	path  uintptr // address of the path; 0 for the file that dir names
	mode  uint32
	flags int
}

func modeChangeOf(n notice) modeChange {
	if uint32(n.call) == chmodCall {
		return modeChange{unix.AT_FDCWD, uintptr(n.args[0]), uint32(n.args[1]), 0}
	}
	if n.call == unix.SYS_FCHMOD {
		return modeChange{int(int32(n.args[0])), 0, uint32(n.args[1]), unix.AT_EMPTY_PATH}
	}
	c := modeChange{int(int32(n.args[0])), uintptr(n.args[1]), uint32(n.args[2]), 0}
	if n.call == unix.SYS_FCHMODAT2 {
		c.flags = int(int32(n.args[3]))
	}
	return c
}

// open opens the file that the caller named, with O_PATH.
func (c modeChange) open(listener int, n notice) (int, error) {
	path := ""
	if c.path != 0 {
		var err error
		if path, err = readText(int(n.pid), c.path); err != nil {
			return -1, err
		}
	}
	process := "/proc/" + strconv.Itoa(int(n.pid))
	for _, self := range []string{"/proc/self/", "/proc/thread-self/"} { // glibc uses such paths for open files
		if rest, ok := strings.CutPrefix(path, self); ok {
			path = process + "/" + rest
		}
	}
	from := process + "/cwd"
	if c.dir != unix.AT_FDCWD {
		from = process + "/fd/" + strconv.Itoa(c.dir)
	}
	base, err := unix.Open(from, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	// Check that the process has not ended, because another process could have its pid.
	if err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&n.id)); err != nil {
		unix.Close(base)
		return -1, err
	}
	if path == "" && c.flags&unix.AT_EMPTY_PATH != 0 {
		return base, nil
	}
	defer unix.Close(base)
	flags := unix.O_PATH | unix.O_CLOEXEC
	if c.flags&unix.AT_SYMLINK_NOFOLLOW != 0 {
		flags |= unix.O_NOFOLLOW
	}
	return unix.Openat(base, path, flags, 0)
}

// readText reads a zero-terminated string from the memory of a process.
func readText(pid int, at uintptr) (string, error) {
	var text []byte
	page := uintptr(os.Getpagesize())
	for len(text) < unix.PathMax {
		part := make([]byte, page-at%page) // to the end of the page: the next page may be unmapped
		got, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &part[0], Len: uint64(len(part))}},
			[]unix.RemoteIovec{{Base: at, Len: len(part)}}, 0)
		if err != nil {
			return "", err
		}
		part = part[:got]
		if end := bytes.IndexByte(part, 0); end >= 0 {
			return string(append(text, part[:end]...)), nil
		}
		text, at = append(text, part...), at+uintptr(got)
	}
	return "", unix.ENAMETOOLONG
}
