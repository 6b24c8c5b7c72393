package seccomp

import "golang.org/x/sys/unix"

// chmodCall names its file by a path alone.
const chmodCall = unix.SYS_CHMOD

// modeCalls set a file's mode. Those that make directories are not among them: the kernel ignores the bits of setID there.
var modeCalls = []modeCall{
	{unix.SYS_CHMOD, 1, true}, {unix.SYS_FCHMOD, 1, false}, {unix.SYS_FCHMODAT, 2, true}, {unix.SYS_FCHMODAT2, 2, true},
	{unix.SYS_CREAT, 1, false}, {unix.SYS_MKNOD, 1, false}, {unix.SYS_MKNODAT, 2, false},
}

// openCalls take a mode only with certain flags, which are the argument before it.
var openCalls = []modeCall{{unix.SYS_OPEN, 2, false}, {unix.SYS_OPENAT, 3, false}}
