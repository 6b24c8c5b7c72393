package seccomp

import (
	"math"

	"golang.org/x/sys/unix"
)

// chmodCall is the number of chmod(2). arm64 has no such call.
const chmodCall = math.MaxUint32

// modeCalls set the mode of a file. Calls that create directories are missing, because the kernel ignores the bits
// of setID there.
var modeCalls = []modeCall{
	{unix.SYS_FCHMOD, 1, false}, {unix.SYS_FCHMODAT, 2, true}, {unix.SYS_FCHMODAT2, 2, true}, {unix.SYS_MKNODAT, 2, false},
}

// openCalls use their mode argument only with certain flags. The flags are the argument before it.
var openCalls = []modeCall{{unix.SYS_OPENAT, 3, false}}

// ownerCalls change the owner or group of a file. They also clear its set-user-id bit.
var ownerCalls = []uint32{unix.SYS_FCHOWN, unix.SYS_FCHOWNAT}
