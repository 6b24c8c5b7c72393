package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attemptName makes the test binary a program that tries one thing for each line of its argument, and prints what the
// kernel answered: "ok" or the name of an errno. It runs isolated, where nothing else that can make raw system calls
// may be installed.
const attemptName = "attempt"

func attempt(lines string) {
	for line := range strings.Lines(lines) {
		attemptOne(strings.Fields(line))
	}
}

func attemptOne(args []string) {
	err := attempts[args[0]](args[1:])
	errno := syscall.Errno(0)
	switch {
	case err == nil:
		fmt.Println("ok")
	case errors.As(err, &errno):
		fmt.Println(unix.ErrnoName(errno))
	default:
		fmt.Println(err)
	}
}

var attempts = map[string]func(args []string) error{
	"read":   func(a []string) error { return opening(a[0], unix.O_RDONLY) },
	"list":   func(a []string) error { return opening(a[0], unix.O_RDONLY|unix.O_DIRECTORY) },
	"write":  func(a []string) error { return opening(a[0], unix.O_WRONLY) },
	"create": func(a []string) error { return opening(a[0], unix.O_WRONLY|unix.O_CREAT) },
	"overwrite": func(a []string) error {
		fd, err := unix.Open(a[0], unix.O_WRONLY|unix.O_TRUNC, 0)
		if err != nil {
			return err
		}
		_, err = unix.Write(fd, []byte("evil"))
		return err
	},
	"cut":    func(a []string) error { return unix.Truncate(a[0], 0) },
	"mkdir":  func(a []string) error { return unix.Mkdir(a[0], 0o755) },
	"remove": func(a []string) error { return os.Remove(a[0]) },
	"rename": func(a []string) error { return unix.Rename(a[0], a[1]) },
	"swap": func(a []string) error {
		return unix.Renameat2(unix.AT_FDCWD, a[0], unix.AT_FDCWD, a[1], unix.RENAME_EXCHANGE)
	},
	"link":    func(a []string) error { return unix.Link(a[0], a[1]) },
	"symlink": func(a []string) error { return unix.Symlink(a[0], a[1]) },
	"chmod":   func(a []string) error { return unix.Chmod(a[0], 0o777) },
	"chown":   func(a []string) error { return unix.Chown(a[0], -1, os.Getgid()) },
	// mode sets the mode of a file that is there, by the named call.
	"mode": func(a []string) error { return setMode(a[0], a[1], uint32(number(a[2]))) },
	// nosuid finds no mount that honours set-user-id bits.
	"nosuid": func([]string) error {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(mounts)) {
			if fields := strings.Fields(line); !slices.Contains(strings.Split(fields[5], ","), "nosuid") {
				return fmt.Errorf("%s is mounted %s", fields[4], fields[5])
			}
		}
		return nil
	},
	"node": func(a []string) error { return unix.Mknod(a[0], unix.S_IFBLK|0o666, 8<<8) },
	// replace is what an editor does: a new file renamed over the old one.
	"replace": func(a []string) error {
		fresh := filepath.Join(filepath.Dir(a[0]), "fresh")
		if err := os.WriteFile(fresh, []byte("evil"), 0o644); err != nil {
			return err
		}
		return unix.Rename(fresh, a[0])
	},

	"tcp": func(a []string) error { return connecting("tcp", a[0], unix.SOCK_STREAM, 0) },
	"udp": func(a []string) error { return connecting("udp", a[0], unix.SOCK_DGRAM, 0) },
	"mptcp": func(a []string) error {
		return connecting("tcp", a[0], unix.SOCK_STREAM, unix.IPPROTO_MPTCP)
	},
	"unix": func(a []string) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		return unix.Connect(fd, &unix.SockaddrUnix{Name: a[0]})
	},
	"fastopen": func(a []string) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendto(fd, []byte("hello"), unix.MSG_FASTOPEN, address(a[0]))
	},
	"bind": func(a []string) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		return unix.Bind(fd, address(a[0]))
	},
	"segment": func(a []string) error { // of shared memory
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, number(a[0]), 0o600)
		if err != nil {
			return err
		}
		_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
		return err
	},
	"pair": func(a []string) error {
		_, err := unix.Socketpair(number(a[0]), number(a[1]), 0)
		return err
	},
	"datagram": func(a []string) error {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendto(pair[0], []byte("hello"), 0, &unix.SockaddrUnix{Name: a[0]})
	},
	"socket": func(a []string) error {
		_, err := unix.Socket(number(a[0]), number(a[1]), number(a[2]))
		return err
	},

	// wait returns when there is a file.
	"wait": func(a []string) error {
		fmt.Println("waiting")
		for opening(a[0], unix.O_RDONLY) != nil {
			time.Sleep(5 * time.Millisecond)
		}
		return nil
	},
	// fetch asks for a page as every program does that knows the proxy's variables.
	"fetch": func(a []string) error {
		answer, err := http.Get(a[0])
		if err != nil {
			return err
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		return fmt.Errorf("%s: %s", answer.Status, body)
	},
	// serve prints its port, and greets each client.
	"serve": func(a []string) error {
		l, err := net.Listen("tcp", a[0])
		if err != nil {
			return err
		}
		fmt.Println(l.Addr().(*net.TCPAddr).Port)
		for {
			conn, err := l.Accept()
			if err != nil {
				return err
			}
			fmt.Fprint(conn, "hello from inside")
			conn.Close()
		}
	},

	// inotify prints how many instances the kernel allows.
	"inotify": func([]string) error {
		n := 0
		for ; ; n++ {
			if _, err := unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
				return fmt.Errorf("%d %s", n, unix.ErrnoName(err.(syscall.Errno)))
			}
		}
	},

	"kill":    func(a []string) error { return unix.Kill(number(a[0]), 0) },
	"unshare": func(a []string) error { return unix.Unshare(number(a[0])) },
	"clone":   func(a []string) error { return child(unix.SYS_CLONE, uintptr(number(a[0]))|uintptr(unix.SIGCHLD), 0) },
	"clone3": func(a []string) error {
		args := [11]uint64{0: uint64(number(a[0])), 4: uint64(unix.SIGCHLD)}
		return child(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args))
	},
	"setns": func(a []string) error {
		f, err := os.Open(a[0])
		if err != nil {
			return err
		}
		return unix.Setns(int(f.Fd()), 0)
	},
	"mount":  func(a []string) error { return unix.Mount("none", a[0], "tmpfs", 0, "") },
	"umount": func(a []string) error { return unix.Unmount(a[0], unix.MNT_DETACH) },
	"remount": func(a []string) error {
		return unix.Mount("", a[0], "", unix.MS_REMOUNT|unix.MS_BIND, "")
	},
	"chroot": func(a []string) error { return unix.Chroot(a[0]) },
	"ptrace": func(a []string) error { return unix.PtraceAttach(number(a[0])) },
	"peek": func(a []string) error {
		b := make([]byte, 8)
		_, err := unix.ProcessVMReadv(number(a[0]), []unix.Iovec{{Base: &b[0], Len: 8}},
			[]unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
		return err
	},
	"sti": func([]string) error {
		c := byte('x')
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
		return failed(errno)
	},
	"lease": func(a []string) error {
		f, err := os.Open(a[0])
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
		return err
	},
	"limit": func(a []string) error { // of another process
		var limit unix.Rlimit
		if err := unix.Prlimit(number(a[0]), unix.RLIMIT_CPU, nil, &limit); err != nil {
			return err
		}
		return unix.Prlimit(number(a[0]), unix.RLIMIT_CPU, &limit, nil)
	},
	"shed": func([]string) error { // the mark by which the worker finds its processes
		var limit unix.Rlimit
		if err := unix.Prlimit(0, unix.RLIMIT_RTTIME, nil, &limit); err != nil {
			return err
		}
		limit.Cur--
		return unix.Prlimit(0, unix.RLIMIT_RTTIME, &limit, nil)
	},
	// call makes a system call with zeroes, which none of them takes: a filter that lets it through shows by another
	// errno.
	"call": func(a []string) error {
		_, _, errno := unix.Syscall6(uintptr(number(a[0])), 0, 0, 0, 0, 0, 0)
		return failed(errno)
	},
	"foreign": func([]string) error { // the same with the number of another table (x32)
		_, _, errno := unix.Syscall(1<<30|unix.SYS_GETPID, 0, 0, 0)
		return failed(errno)
	},

	// privileges prints what a process could do more than others. The bounding set of one without rights cannot be
	// emptied.
	"privileges": func([]string) error {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			return err
		}
		var of []string
		for line := range strings.Lines(string(status)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
			if strings.HasPrefix(name, "Cap") && strings.Trim(value, "0") != "" && (name != "CapBnd" || os.Geteuid() == 0) ||
				name == "NoNewPrivs" && value != "1" {
				of = append(of, name+"="+value)
			}
		}
		if len(of) > 0 {
			return errors.New(strings.Join(of, " "))
		}
		return nil
	},
	"euid": func([]string) error { return fmt.Errorf("euid %d", os.Geteuid()) },
	// descriptors prints those that are open besides the three of every program.
	"descriptors": func([]string) error {
		for fd := range 1 << 16 {
			var s unix.Stat_t
			name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			if fd > 2 && err == nil && unix.Fstat(fd, &s) == nil && !strings.HasPrefix(name, "anon_inode:") { // Go's poller
				return fmt.Errorf("%d is %s", fd, name)
			}
		}
		return nil
	},
}

func opening(path string, flags int) error {
	fd, err := unix.Open(path, flags, 0o644)
	if err != nil {
		return err
	}
	var b [1]byte
	if flags&(unix.O_WRONLY|unix.O_DIRECTORY) == 0 {
		_, err = unix.Read(fd, b[:])
	}
	return err
}

func setMode(call, path string, mode uint32) error {
	created := func(fd int, err error) error {
		if err == nil {
			err = unix.Close(fd)
		}
		return err
	}
	fresh := path + "-by-" + call
	if err := os.Remove(fresh); err != nil && !os.IsNotExist(err) {
		return err
	}
	switch call {
	case "chmod":
		return unix.Chmod(path, mode)
	case "fchmod":
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Fchmod(int(f.Fd()), mode)
	case "fchmodat":
		return unix.Fchmodat(unix.AT_FDCWD, path, mode, 0)
	case "fchmodat2":
		return unix.Fchmodat(unix.AT_FDCWD, path, mode, unix.AT_SYMLINK_NOFOLLOW)
	case "path": // of an open file that was not opened to be read
		fd, err := unix.Open(path, unix.O_PATH, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return errors.Join(unix.Fchmod(fd, mode), unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode))
	case "list": // an access control list that says the same as a mode of 0770
		return unix.Setxattr(path, "system.posix_acl_access",
			[]byte("\x02\x00\x00\x00\x01\x00\x07\x00\xff\xff\xff\xff\x04\x00\x07\x00\xff\xff\xff\xff\x20\x00\x00\x00\xff\xff\xff\xff"), 0)
	case "open":
		return created(unix.Open(fresh, unix.O_CREAT|unix.O_WRONLY, mode))
	case "nameless":
		return created(unix.Open(filepath.Dir(path), unix.O_TMPFILE|unix.O_WRONLY, mode))
	case "openat2":
		return created(unix.Openat2(unix.AT_FDCWD, fresh, &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY,
			Mode: uint64(mode)}))
	case "mknod":
		return unix.Mknod(fresh, unix.S_IFREG|mode, 0)
	}
	return fmt.Errorf("no such call: %s", call)
}

func connecting(network, to string, kind, protocol int) error {
	fd, err := unix.Socket(unix.AF_INET, kind, protocol)
	if err != nil {
		return err
	}
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 3})
	return unix.Connect(fd, address(to))
}

func address(s string) *unix.SockaddrInet4 {
	a, err := net.ResolveTCPAddr("tcp4", s)
	if err != nil {
		panic(err)
	}
	return &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())}
}

// child forks by a raw call. What is born leaves at once.
func child(call uintptr, a, b uintptr) error {
	pid, _, errno := unix.RawSyscall6(call, a, b, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return failed(errno)
}

func failed(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

func number(s string) int {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		panic(err)
	}
	return int(n)
}
