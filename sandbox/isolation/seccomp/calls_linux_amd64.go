package seccomp

import "golang.org/x/sys/unix"

// chmodCall is the number of chmod(2).
const chmodCall = unix.SYS_CHMOD

// modeCalls set the mode of a file. Calls that create directories are missing, because the kernel ignores the bits
// of setID there.
var modeCalls = []modeCall{
	{unix.SYS_CHMOD, 1, true}, {unix.SYS_FCHMOD, 1, false}, {unix.SYS_FCHMODAT, 2, true}, {unix.SYS_FCHMODAT2, 2, true},
	{unix.SYS_CREAT, 1, false}, {unix.SYS_MKNOD, 1, false}, {unix.SYS_MKNODAT, 2, false},
}

// openCalls use their mode argument only with certain flags. The flags are the argument before it.
var openCalls = []modeCall{{unix.SYS_OPEN, 2, false}, {unix.SYS_OPENAT, 3, false}}

// ownerCalls change the owner or group of a file. They also clear its set-user-id bit.
var ownerCalls = []uint32{unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT}
