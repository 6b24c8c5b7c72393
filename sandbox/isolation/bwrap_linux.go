package isolation

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
)

// bwrapCommand is how bubblewrap is called for one command. It takes its own privileges away, is killed with the thread that
// starts it, and kills all that is in its process namespace with itself.
func (w *Walls) bwrapCommand(c Command, shields []shield) (*Start, error) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return nil, fmt.Errorf("%w: install bubblewrap, for example with apt install bubblewrap", err)
	}
	filter, err := w.filters.open()
	if err != nil {
		return nil, err
	}
	s := &Start{Files: append(c.Files[:len(c.Files):len(c.Files)], filter), Entered: true, close: []func(){func() { filter.Close() }}}
	s.Argv = append(s.Argv, bwrap, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try",
		"--die-with-parent", "--cap-drop", "ALL", "--seccomp", strconv.Itoa(3+len(c.Files)))
	if !c.Terminal { // with one, the session it is the controlling terminal of is the walls' own
		s.Argv = append(s.Argv, "--new-session")
	}
	s.Argv = append(s.Argv, w.bwrapFiles()...)
	noLinks := len(w.place.NoLinks) > 0 && w.follows == nil
	if noLinks {
		before, err := w.linksArgv(shields)
		if err != nil {
			return nil, err
		}
		s.Argv, s.Attributes, shields = append(before, s.Argv...), linksAttributes, nil
	}
	for _, shield := range shields {
		switch {
		case shield.empty: // measured, bubblewrap takes a sixth of a bind's time for it
			s.Argv = append(s.Argv, "--size", "4096", "--perms", "0555", "--tmpfs", shield.path)
		case shield.writable:
			s.Argv = append(s.Argv, "--bind", shield.path, shield.path)
		default:
			s.Argv = append(s.Argv, "--ro-bind", shield.path, shield.path)
		}
	}
	if c.Helper != "" {
		s.Argv = append(s.Argv, "--ro-bind", c.Helper, HelperPath)
	}
	s.Argv = append(s.Argv, "--remount-ro", "/", "--chdir", c.Dir, "--")
	s.Argv = append(s.Argv, c.Argv...)
	return s, nil
}

// bwrapFiles are the arguments that build the root. Later ones lie over earlier ones: what is writable comes last. /proc is
// made read-only since bubblewrap takes /proc/sys for it already, while root may write there even without capabilities.
func (w *Walls) bwrapFiles() (args []string) {
	for _, dir := range system {
		info, err := os.Lstat(dir)
		switch {
		case err != nil:
		case info.Mode()&os.ModeSymlink != 0:
			if target, err := os.Readlink(dir); err == nil {
				args = append(args, "--symlink", target, dir)
			}
		default:
			args = append(args, "--ro-bind", dir, dir)
		}
	}
	args = append(args, w.bwrapMasks()...)
	args = append(args, "--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev",
		"--size", strconv.Itoa(smallSize), "--tmpfs", "/dev/shm", "--remount-ro", "/dev",
		"--size", strconv.Itoa(tempSize), "--perms", "1777", "--tmpfs", "/tmp", "--size", strconv.Itoa(smallSize), "--tmpfs", "/run")
	for _, link := range w.place.symlinks() {
		args = append(args, "--symlink", link.target, link.path)
	}
	for _, dir := range w.place.Expose {
		args = append(args, "--ro-bind", dir, dir)
	}
	for _, dir := range slices.Concat([]string{w.place.Home}, w.place.Writable, []string{w.place.Workspace}) {
		args = append(args, "--bind", dir, dir)
	}
	return args
}

// bwrapMasks cover the secrets as mask does.
func (w *Walls) bwrapMasks() (args []string) {
	for _, path := range w.secrets.Paths() {
		info, err := os.Lstat(path)
		switch {
		case err != nil:
		case info.IsDir():
			args = append(args, "--perms", "0000", "--tmpfs", path, "--remount-ro", path)
		default: // a device on a mount that allows none: it cannot be opened
			args = append(args, "--ro-bind", os.DevNull, path)
		}
	}
	return args
}
