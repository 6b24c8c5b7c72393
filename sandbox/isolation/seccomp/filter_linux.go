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

// Sockets says which sockets a process may create. It may always create a pair of connected Unix sockets with
// socketpair(2). With NoSockets and TCPSockets the pair may not be of datagrams, because those can be sent to any
// socket.
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

// denied are system calls that commands do not need. Some of them often have kernel vulnerabilities. Others could
// undo the isolation.
var denied = []uint32{
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_OPEN_TREE_ATTR,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_UNSHARE,
	unix.SYS_SETNS,
	unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_USERFAULTFD,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_REBOOT,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_ACCT, unix.SYS_SYSLOG,
	unix.SYS_SETTIMEOFDAY,
	unix.SYS_CLOCK_SETTIME, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP,
}

// namespaces are the flags of clone(2) that create a namespace.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// maxSegment is the largest size of a shared memory segment (shmget(2)), in bytes. The kernel allows 4096 segments,
// so together they use at most 256 MiB.
const maxSegment = 64 << 10

// Offsets in struct seccomp_data, seccomp(2).
const (
	offsetCall = 0
	offsetArch = 4
)

// argument loads the lower 32 bits of an argument. The checked arguments have 32 bits, or no valid value with upper
// bits.
func argument(n uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: 16 + 8*n, Size: 4} }

// upperHalf loads the upper 32 bits of an argument.
func upperHalf(n uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: 20 + 8*n, Size: 4} }

var (
	allow = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	deny  = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}

	// missing makes a program use an older call.
	missing = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}

	// unsupported is the error of a file system without attributes. Programs that copy files accept it.
	unsupported = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EOPNOTSUPP)}
)

// setID are the mode bits that give the rights of a file's owner or group to every user who executes it. The filter
// denies the set-group-id bit also for directories, because it cannot read the type of a file.
const setID = unix.S_ISUID | unix.S_ISGID

// creates are the flags of open(2) that make it use its mode argument.
const creates = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY

// modeRules deny each call that sets a bit of setID. They answer openat2 with ENOSYS, because its mode is in memory.
// With supervise they send each chmod to the supervisor, and deny calls that set access control lists, owners or
// groups.
func modeRules(supervise bool) (program []bpf.Instruction) {
	for _, c := range modeCalls {
		otherwise := allow
		if supervise && (c.path || c.call == unix.SYS_FCHMOD) {
			otherwise = bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF}
		}
		program = append(program, when(c.call, argument(c.mode), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: setID, SkipFalse: 1},
			deny, otherwise)...)
	}
	if supervise {
		for _, call := range attributeCalls {
			program = append(program, when(call, unsupported)...)
		}
		for _, call := range ownerCalls {
			program = append(program, when(call, deny)...)
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

// modeCall is a system call with a mode argument.
type modeCall struct {
	call, mode uint32 // mode is the index of the mode argument
	path       bool   // it names the file by a path
}

// attributeCalls change the attributes of a file. A descriptor that can only read is enough for them.
var attributeCalls = []uint32{
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR,
}

// New returns the filter for o. It answers clone3 with ENOSYS unless o allows it, because the flags of clone3 are in
// memory. Programs then use clone. It returns an error if it does not support the machine's architecture.
func New(o Options) (Filter, error) {
	arch, ok := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("no seccomp filter for %s", runtime.GOARCH)
	}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}, // other architectures have other call numbers
		bpf.LoadAbsolute{Off: offsetCall, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: 1 << 30, SkipFalse: 1}, // x32 has other call numbers too
		deny,
	}
	program = append(program, modeRules(o.SuperviseModes)...) // first, because opening files is the most frequent call
	for _, call := range denied {
		program = append(program, when(call, deny)...)
	}
	if !o.Clone3 {
		program = append(program, when(unix.SYS_CLONE3, missing)...)
	}
	program = append(program, when(unix.SYS_CLONE, argument(0),
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: namespaces, SkipFalse: 1}, deny, allow)...)
	// The worker uses these two to start a command stopped. PTRACE_TRACEME is harmless: no process can trace the caller.
	program = append(program, when(unix.SYS_PTRACE, among(0, unix.PTRACE_TRACEME, unix.PTRACE_DETACH)...)...)
	program = append(program, when(unix.SYS_IOCTL, argument(1),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: tioclinux, SkipTrue: 1}, allow, deny)...)
	// Whoever opens a file with a lease waits for 45 s, programs outside the sandbox too.
	program = append(program, when(unix.SYS_FCNTL, argument(1),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.F_SETLEASE, SkipFalse: 1}, deny, allow)...)
	// The worker labels a command's processes with this limit, to find and end them.
	program = append(program, when(unix.SYS_SETRLIMIT, argument(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.RLIMIT_RTTIME, SkipFalse: 1}, deny, allow)...)
	program = append(program, when(unix.SYS_PRLIMIT64,
		argument(2), // a pointer to the new limit; null only reads the limit
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipFalse: 2},
		upperHalf(2),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 4},
		argument(0), // the pid: a new limit could end another process
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipFalse: 3},
		argument(1),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.RLIMIT_RTTIME, SkipTrue: 1},
		allow, deny)...)
	if o.Sockets != NamespaceSockets { // System V IPC without an IPC namespace
		for _, call := range []uint32{
			unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP,
			unix.SYS_SEMCTL,
			unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
		} {
			program = append(program, when(call, deny)...)
		}
	} else { // the worker cannot count segments that no process has mapped; PostgreSQL needs 56 bytes
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

// tioclinux inserts input into a console, as TIOCSTI does into a terminal; ioctl_console(2).
const tioclinux = 0x541c

// when applies rules to one system call. The rules must end with a return.
func when(call uint32, rules ...bpf.Instruction) []bpf.Instruction {
	return append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpEqual, Val: call, SkipFalse: uint8(len(rules))}}, rules...)
}

// among allows a call if its argument is one of the values.
func among(n uint32, values ...uint32) []bpf.Instruction {
	rules := []bpf.Instruction{argument(n)}
	for i, v := range values {
		rules = append(rules, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(values) - i)})
	}
	return append(rules, deny, allow)
}

// pairRules limit socketpair(2). They deny SOCK_DGRAM, and SOCK_RAW, which the kernel treats alike.
func pairRules() []bpf.Instruction {
	return when(unix.SYS_SOCKETPAIR, argument(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipFalse: 4},
		argument(1),
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf}, // without SOCK_NONBLOCK and SOCK_CLOEXEC
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_SEQPACKET, SkipTrue: 1},
		deny, allow)
}

// socketRules limit socket(2) and socketpair(2).
func socketRules(s Sockets) []bpf.Instruction {
	switch s {
	case NoSockets:
		return append(pairRules(), when(unix.SYS_SOCKET, deny)...)
	case NamespaceSockets: // a network namespace does not confine other families, or they expose more of the kernel
		return when(unix.SYS_SOCKET, argument(0),
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipTrue: 6},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 5},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET6, SkipTrue: 4},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipFalse: 2},
			argument(2), // programs list network interfaces with it
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.NETLINK_ROUTE, SkipTrue: 1},
			deny, allow)
	}
	return append(pairRules(), when(unix.SYS_SOCKET, argument(0), // excludes MPTCP and SCTP, which are also SOCK_STREAM
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET6, SkipFalse: 6},
		argument(1),
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf}, // without SOCK_NONBLOCK and SOCK_CLOEXEC
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipFalse: 3},
		argument(2),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: 1},
		deny, allow)...)
}

// File returns a memory file with the filter in the format that bubblewrap reads. Each reader needs its own open
// file, because bubblewrap reads from the current position.
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

// Install installs the filter on the calling thread and its later children. The thread must have set no_new_privs.
func (f Filter) Install() error {
	fprog := unix.SockFprog{Len: uint16(len(f)), Filter: (*unix.SockFilter)(unsafe.Pointer(&f[0]))} // same layout
	if _, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER,
		uintptr(unsafe.Pointer(&fprog))); errno != 0 {
		return fmt.Errorf("set seccomp filter: %w", errno)
	}
	return nil
}
