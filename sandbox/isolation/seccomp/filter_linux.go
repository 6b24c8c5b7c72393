package seccomp

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Sockets says which sockets a process may create. It may always create a pair with socketpair(2).
type Sockets int

const (
	NoSockets        Sockets = iota
	TCPSockets               // TCP over IPv4 and IPv6
	NamespaceSockets         // Unix, IPv4, IPv6 and NETLINK_ROUTE sockets; for a process in a network namespace of its own
)

// Options select what a filter allows.
type Options struct {
	Sockets        Sockets
	Clone3         bool // allow clone3(2), whose flags a filter cannot read
	SuperviseModes bool // for Filter.Supervise
}

// Filter is a seccomp program.
type Filter []bpf.RawInstruction

// denied are the system calls that no command has a use for and that the kernel's holes are found in, or by which one
// gets out of the walls.
var denied = []uint32{
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_UNSHARE, unix.SYS_SETNS,
	unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_REBOOT,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_ACCT, unix.SYS_SYSLOG, unix.SYS_SETTIMEOFDAY,
	unix.SYS_CLOCK_SETTIME, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP,
}

// namespaces are the flags of clone(2) that make one.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// maxSegment is how large a segment of shared memory may be (shmget(2)): the 4096 that there can be take 256 MiB.
const maxSegment = 64 << 10

// Offsets in struct seccomp_data, seccomp(2).
const (
	offsetCall = 0
	offsetArch = 4
)

// argument loads the lower half of an argument. The calls looked at take 32 bits, or know no value with an upper half.
func argument(n uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: 16 + 8*n, Size: 4} }

func upperHalf(n uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: 20 + 8*n, Size: 4} }

var (
	allow = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	deny  = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}

	// missing makes a program fall back to an older call.
	missing = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}

	// unsupported is the answer of a file system without attributes, which programs that copy files accept.
	unsupported = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EOPNOTSUPP)}
)

// setID are the mode bits by which a file lends its owner's or its group's rights to any user of the machine who executes
// it. Directories lose the set-group-id bit too: the filter cannot tell which kind of file a path names.
const setID = unix.S_ISUID | unix.S_ISGID

// creates are the flags of open(2) with which it takes a mode.
const creates = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY

// modeRules deny each call that sets a file's mode to one with a bit of setID. openat2 has its mode in memory, where a filter
// cannot look. With handOver they hand over each chmod, and deny the attributes that hold access control lists.
func modeRules(handOver bool) (program []bpf.Instruction) {
	for _, c := range modeCalls {
		otherwise := allow
		if handOver && (c.path || c.call == unix.SYS_FCHMOD) {
			otherwise = bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF}
		}
		program = append(program, when(c.call, argument(c.mode), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: setID, SkipFalse: 1}, deny, otherwise)...)
	}
	if handOver {
		for _, call := range attributeCalls {
			program = append(program, when(call, unsupported)...)
		}
	}
	for _, c := range openCalls {
		program = append(program, when(c.call, argument(c.mode-1),
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: creates, SkipFalse: 3},
			argument(c.mode),
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: setID, SkipFalse: 1},
			deny, allow)...)
	}
	return append(program, when(unix.SYS_OPENAT2, missing)...)
}

// modeCall is a system call that takes a mode.
type modeCall struct {
	call, mode uint32 // mode is the number of the argument, from 0
	path       bool   // it changes a file that is named by a path
}

// attributeCalls change the attributes of a file that is named by a path.
var attributeCalls = []uint32{
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_SETXATTRAT, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR,
}

// New is the seccomp program. It is a deny list: what a command may reach is decided by names and addresses elsewhere,
// here the kernel's dangerous corners are closed. clone3 has its flags in memory, where a filter cannot look: unless
// something else keeps commands from making namespaces it is denied as missing, and everybody falls back to clone. handOver is
// for modeRules.
func New(o Options) (Filter, error) {
	arch, ok := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("no seccomp filter for %s", runtime.GOARCH)
	}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}, // numbers mean other calls there
		bpf.LoadAbsolute{Off: offsetCall, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: 1 << 30, SkipFalse: 1}, // x32, other numbers again
		deny,
	}
	program = append(program, modeRules(o.SuperviseModes)...) // first, because programs open files more often than they do anything else
	for _, call := range denied {
		program = append(program, when(call, deny)...)
	}
	if !o.Clone3 {
		program = append(program, when(unix.SYS_CLONE3, missing)...)
	}
	program = append(program, when(unix.SYS_CLONE, argument(0), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: namespaces, SkipFalse: 1}, deny, allow)...)
	// The worker starts a command halted by these two. By the first a process lets itself be traced, which then nobody can do.
	program = append(program, when(unix.SYS_PTRACE, among(0, unix.PTRACE_TRACEME, unix.PTRACE_DETACH)...)...)
	program = append(program, when(unix.SYS_IOCTL, argument(1),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 2}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: tioclinux, SkipTrue: 1}, allow, deny)...)
	// The worker marks a command's processes by this limit, and finds those it has to end by it.
	program = append(program, when(unix.SYS_SETRLIMIT, argument(0), bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.RLIMIT_RTTIME, SkipFalse: 1}, deny, allow)...)
	program = append(program, when(unix.SYS_PRLIMIT64,
		argument(2), // the new limit, a pointer: without one it is only read
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipFalse: 2},
		upperHalf(2),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 4},
		argument(0), // another process's limits may end it
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipFalse: 3},
		argument(1),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.RLIMIT_RTTIME, SkipTrue: 1},
		allow, deny)...)
	if o.Sockets != NamespaceSockets { // there is no namespace of its own for these
		for _, call := range []uint32{
			unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
			unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
		} {
			program = append(program, when(call, deny)...)
		}
	} else { // nothing but the kernel itself can count what of it no process has mapped; PostgreSQL takes 56 bytes
		program = append(program, when(unix.SYS_SHMGET,
			upperHalf(1),
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipFalse: 2},
			argument(1),
			bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: maxSegment, SkipFalse: 1},
			deny, allow)...)
	}
	program = append(program, socketRules(o.Sockets)...)
	return bpf.Assemble(append(program, allow))
}

// tioclinux types into a console, like TIOCSTI into a terminal; ioctl_console(2).
const tioclinux = 0x541c

// when applies rules, which must end in a return, to one system call.
func when(call uint32, rules ...bpf.Instruction) []bpf.Instruction {
	return append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpEqual, Val: call, SkipFalse: uint8(len(rules))}}, rules...)
}

// among allows a call whose argument is one of the values.
func among(n uint32, values ...uint32) []bpf.Instruction {
	rules := []bpf.Instruction{argument(n)}
	for i, v := range values {
		rules = append(rules, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(values) - i)})
	}
	return append(rules, deny, allow)
}

func socketRules(s Sockets) []bpf.Instruction {
	switch s {
	case NoSockets:
		return when(unix.SYS_SOCKET, deny)
	case NamespaceSockets: // all others are not confined by a network namespace, or reach into the kernel
		return when(unix.SYS_SOCKET, argument(0),
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipTrue: 6},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 5},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET6, SkipTrue: 4},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipFalse: 2},
			argument(2), // programs list their interfaces by it
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.NETLINK_ROUTE, SkipTrue: 1},
			deny, allow)
	}
	return when(unix.SYS_SOCKET, argument(0), // not MPTCP or SCTP, which are streams too
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET6, SkipFalse: 6},
		argument(1),
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf}, // without SOCK_NONBLOCK and SOCK_CLOEXEC
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipFalse: 3},
		argument(2),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: 1},
		deny, allow)
}

// filterFile is a filter as bwrap reads it: the instructions as they lie in memory. It is read from its start by each
// bwrap that inherits an own open file, and its position must not be shared.
func (f Filter) File() (*os.File, error) {
	var data []byte
	for _, i := range f {
		data = binary.NativeEndian.AppendUint16(data, i.Op)
		data = append(data, i.Jt, i.Jf)
		data = binary.NativeEndian.AppendUint32(data, i.K)
	}
	fd, err := unix.MemfdCreate("seccomp", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make seccomp file: %w", err)
	}
	file := os.NewFile(uintptr(fd), "seccomp")
	if _, err := file.WriteAt(data, 0); err != nil {
		file.Close()
		return nil, fmt.Errorf("write seccomp file: %w", err)
	}
	return file, nil
}

// filterThread puts this thread and its later children under a filter. It needs no_new_privs.
func (f Filter) Install() error {
	fprog := unix.SockFprog{Len: uint16(len(f)), Filter: (*unix.SockFilter)(unsafe.Pointer(&f[0]))} // same layout
	if _, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&fprog))); errno != 0 {
		return fmt.Errorf("set seccomp filter: %w", errno)
	}
	return nil
}
