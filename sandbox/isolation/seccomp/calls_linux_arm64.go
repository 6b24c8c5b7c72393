package seccomp

import (
	"math"

	"golang.org/x/sys/unix"
)

// chmodCall names its file by a path alone. There is none here.
const chmodCall = math.MaxUint32

// modeCalls set a file's mode. Those that make directories are not among them: the kernel ignores the bits of setID there.
var modeCalls = []modeCall{
	{unix.SYS_FCHMOD, 1, false}, {unix.SYS_FCHMODAT, 2, true}, {unix.SYS_FCHMODAT2, 2, true}, {unix.SYS_MKNODAT, 2, false},
}

// openCalls take a mode only with certain flags, which are the argument before it.
var openCalls = []modeCall{{unix.SYS_OPENAT, 3, false}}
