package isolation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/isolation/protection"
	"pocketcoder/sandbox/isolation/seccomp"
)

// prepareLevel prepares what all commands share.
func (c *Confinement) prepareLevel() (err error) {
	if c.filters, err = newFilters(c.choice.canMount, c.choice.supervisesModes()); err != nil {
		return err
	}
	if c.choice.Level == Container {
		return disableDumps()
	}
	if c.TempDir() != "/tmp" {
		if err := os.MkdirAll(c.TempDir(), 0o700); err != nil {
			return fmt.Errorf("make directory for temporary files: %w", err)
		}
	}
	c.protection.RemoveLeftovers()
	c.checkNoSymlinks()
	return nil
}

func (c *Confinement) prepare(cmd Command) (*PreparedCommand, error) {
	if c.choice.Level == Container {
		return &PreparedCommand{Argv: cmd.Argv, Files: cmd.Files,
			Confine: func() error { return c.confineInContainer(cmd) }}, nil
	}
	if cmd.ManagesWorktrees {
		if err := c.protection.MakeWorktrees(); err != nil {
			return nil, err
		}
	}
	var mounts []protection.Mount
	release := func() {}
	if c.choice.Mounts() {
		var err error
		if mounts, release, err = c.protection.Protect(cmd.ManagesWorktrees); err != nil {
			return nil, err
		}
	}
	if c.choice.Level == Landlock {
		confine := func() error { return c.confineWithLandlock(cmd, mounts) }
		return &PreparedCommand{Argv: cmd.Argv, Files: cmd.Files, Confine: confine, SetsDir: c.choice.canMount,
			cleanups: []func(){release}}, nil
	}
	prepared, err := c.bwrapCommand(cmd, mounts)
	if err != nil {
		release()
		return nil, err
	}
	prepared.cleanups = append(prepared.cleanups, release)
	return prepared, nil
}

// filters holds the seccomp filters that all commands share.
type filters struct {
	noSockets, tcpSockets seccomp.Filter
	bwrapFile             *os.File // the filter in the form that bubblewrap reads
}

func newFilters(clone3, superviseModes bool) (f filters, err error) {
	if f.noSockets, err = seccomp.New(seccomp.Options{Sockets: seccomp.NoSockets, Clone3: clone3,
		SuperviseModes: superviseModes}); err != nil {
		return f, err
	}
	if f.tcpSockets, err = seccomp.New(seccomp.Options{Sockets: seccomp.TCPSockets, Clone3: clone3,
		SuperviseModes: superviseModes}); err != nil {
		return f, err
	}
	filter, err := seccomp.New(seccomp.Options{Sockets: seccomp.NamespaceSockets})
	if err != nil {
		return f, err
	}
	f.bwrapFile, err = filter.File()
	return f, err
}

func (f filters) forCommand(cmd Command) seccomp.Filter {
	if cmd.TCP || len(cmd.Connect)+len(cmd.Bind) > 0 {
		return f.tcpSockets
	}
	return f.noSockets
}

// reopenBwrapFile returns a descriptor of bwrapFile with its own read position.
func (f filters) reopenBwrapFile() (*os.File, error) {
	file, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.bwrapFile.Fd()))
	if err != nil {
		return nil, fmt.Errorf("open seccomp filter: %w", err)
	}
	return file, nil
}

func (f filters) close() {
	if f.bwrapFile != nil {
		f.bwrapFile.Close()
	}
}

func tryLevel(level Level) (Choice, error) {
	switch level {
	case Bwrap:
		choice, err := tryBwrap()
		if err == nil {
			choice.tryLoopback()
		}
		return choice, err
	case Landlock:
		return tryLandlock()
	}
	return tryContainer()
}

const (
	bwrapHelp = "bubblewrap is there but cannot make a sandbox (allow user namespaces: sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000, " +
		"and kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor profile for bwrap; in a container its defaults forbid them)"
	landlockHelp = "it takes Linux 6.7 or newer with landlock among its security modules (boot with lsm=landlock,…)"
)

func tryBwrap() (Choice, error) {
	if _, err := exec.LookPath("bwrap"); err != nil {
		return Choice{}, errors.New("bubblewrap is not installed (for example: apt install bubblewrap)")
	}
	c, remove, err := openProbe(Choice{Level: Bwrap})
	if err != nil {
		return Choice{}, err
	}
	defer remove()
	prepared, err := c.Prepare(Command{Argv: []string{"true"}, Dir: c.access.Workspace})
	if err != nil {
		return Choice{}, err
	}
	defer prepared.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, prepared.Argv[0], prepared.Argv[1:]...)
	cmd.ExtraFiles, cmd.Env = prepared.Files, []string{"PATH=/usr/bin:/bin"}
	runtime.LockOSThread() // bubblewrap is killed when the thread that started it ends
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return Choice{}, fmt.Errorf("%s: %w: %s", bwrapHelp, err, line)
	}
	return Choice{Level: Bwrap, Reason: "bubblewrap works here"}, nil
}

func tryLandlock() (Choice, error) {
	abi, err := landlock.LandlockGetABIVersion()
	if err != nil {
		return Choice{}, fmt.Errorf("the kernel has no Landlock: %s", landlockHelp)
	}
	if abi < minABI {
		return Choice{}, fmt.Errorf("the kernel's Landlock has version %d of at least %d: %s", abi, minABI, landlockHelp)
	}
	choice := Choice{Level: Landlock, Reason: "Landlock works here, with mounts of its own; commands cannot be given a network", canMount: true}
	if probeLandlock(choice) != nil {
		choice.canMount = false
		choice.Reason = "Landlock works here; without root's right to mount, a change of a protected name is undone at once instead of refused, and times of this user's other files can be changed, which bubblewrap avoids; commands cannot be given a network"
		if err := probeLandlock(choice); err != nil {
			return Choice{}, fmt.Errorf("%w: %s", err, landlockHelp)
		}
	}
	if abi < 6 {
		choice.Reason += "; before Linux 6.12 it does not keep commands from signalling other processes of this user"
	}
	return choice, nil
}

// probeLandlock confines a thread, checks that the kernel denies it a file and a system call, and ends the thread.
func probeLandlock(choice Choice) error {
	c, remove, err := openProbe(choice)
	if err != nil {
		return err
	}
	defer remove()
	prepared, err := c.Prepare(Command{Dir: c.access.Workspace})
	if err != nil {
		return err
	}
	defer prepared.Close()
	done := make(chan error)
	RunOnThread(func() {
		done <- func() error {
			if err := prepared.Confine(); err != nil {
				return err
			}
			if fd, err := unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0); !errors.Is(err, unix.EACCES) {
				unix.Close(fd)
				return fmt.Errorf("the kernel let through what Landlock forbids (%v)", err)
			}
			if err := unix.Unshare(unix.CLONE_NEWNS); !errors.Is(err, unix.EPERM) {
				return fmt.Errorf("the kernel let through what seccomp forbids (%v)", err)
			}
			return nil
		}()
	})
	return <-done
}

// openProbe prepares a level for an empty workspace.
func openProbe(choice Choice) (c *Confinement, remove func(), err error) {
	dir, err := os.MkdirTemp("", "pocketcoder-probe-")
	if err != nil {
		return nil, nil, fmt.Errorf("create directory for the test: %w", err)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	access := FileAccess{Workspace: filepath.Join(dir, "workspace"), Home: filepath.Join(dir, "home")}
	if err = errors.Join(os.Mkdir(access.Workspace, 0o700), os.Mkdir(access.Home, 0o700)); err == nil {
		c, err = Open(choice, access)
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, nil, fmt.Errorf("test it in TMPDIR: %w", err)
	}
	return c, func() {
		c.Close()
		os.RemoveAll(dir)
	}, nil
}

func tryContainer() (Choice, error) {
	if os.Getenv(ContainerMark) == "" {
		return Choice{}, errors.New("the worker does not run in PocketCoder's sandbox image")
	}
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(mark); err == nil {
			return Choice{Level: Container, Reason: "the worker runs in its own container"}, nil
		}
	}
	return Choice{}, fmt.Errorf("%s is set, but nothing shows that this is a container of Docker or Podman", ContainerMark)
}

// RunOnThread runs fn in a goroutine that is locked to an OS thread. The thread ends with fn. It is never the
// process's first thread: that thread cannot end, and /proc shows its state as the state of the process.
func RunOnThread(fn func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			locked := make(chan struct{})
			go func() {
				runtime.LockOSThread()
				close(locked)
				fn()
			}()
			<-locked
			runtime.UnlockOSThread()
			return
		}
		fn()
	}()
}

// dropPrivileges removes all capabilities from this thread and its later children, permanently. A set-user-id
// program or a program with file capabilities does not regain them.
func dropPrivileges() error {
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) { // no such capability, or the process has none
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

func (c *Confinement) confineInContainer(cmd Command) error {
	if err := dropPrivileges(); err != nil {
		return err
	}
	return c.filters.forCommand(cmd).Install()
}

// disableDumps prevents commands of the same user from reading and changing this process through /proc.
func disableDumps() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("seal this process: %w", err)
	}
	return nil
}

// setCloseOnExec prevents commands from inheriting descriptors that this process inherited. An inherited directory
// would give access to all files below it. Go sets the flag on the descriptors that it opens.
func setCloseOnExec() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close inherited descriptors to commands: %w", err)
	}
	return nil
}
