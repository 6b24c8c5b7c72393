package isolation

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// renounce takes all capabilities from this thread and its later children, for good: a program of root's, or one with
// capabilities of its own, gets none back.
func dropPrivileges() error {
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) { // there are no more; or it has none to begin with
			break
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return nil
}

// enterContainer is all that is added to the container the worker runs in.
func (c *Confinement) confineInContainer(cmd Command) error {
	if err := dropPrivileges(); err != nil {
		return err
	}
	return c.filters.forCommand(cmd).Install()
}

// seal keeps commands, which run as the same user beside it, from reading and changing this process by /proc.
func disableDumps() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("seal this process: %w", err)
	}
	return nil
}

// closeOnExec keeps commands from inheriting what this process was started with: an open directory would lead past all
// walls. What Go opens is closed anyway.
func setCloseOnExec() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close inherited descriptors to commands: %w", err)
	}
	return nil
}
