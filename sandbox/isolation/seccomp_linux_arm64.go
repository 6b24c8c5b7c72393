package isolation

import "golang.org/x/sys/unix"

// modeCalls set a file's mode. Those that make directories are not among them: the kernel ignores the bits of setID there.
var modeCalls = []modeCall{{unix.SYS_FCHMOD, 1}, {unix.SYS_FCHMODAT, 2}, {unix.SYS_FCHMODAT2, 2}, {unix.SYS_MKNODAT, 2}}

// openCalls take a mode only with certain flags, which are the argument before it.
var openCalls = []modeCall{{unix.SYS_OPENAT, 3}}
