package limit

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Apply does nothing: macOS cannot set the limits of another process.
func (l Limits) Apply(int) error { return nil }

func Probe() error { return errors.New("macOS has no cgroups") }

func TotalMemory() Size {
	bytes, _ := unix.SysctlUint64("hw.memsize")
	return Size(bytes)
}
