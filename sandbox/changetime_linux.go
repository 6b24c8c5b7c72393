package sandbox

import (
	"io/fs"
	"syscall"
)

// changeTime is when a file's content or state changed last, in nanoseconds since 1970. Unlike the time of
// modification, no program can set it.
func changeTime(info fs.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Ctim.Nano() }
