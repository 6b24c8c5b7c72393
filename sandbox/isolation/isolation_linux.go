package isolation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/isolation/seccomp"
	"pocketcoder/sandbox/isolation/systemsecrets"
)

// secrets are the files of the system that commands must not read.
type secrets = *systemsecrets.List

func newSecrets() secrets { return systemsecrets.New() }

// open prepares what all commands share.
func (w *Walls) open() (err error) {
	if w.filters, err = makeFilters(w.found.mounts, w.found.supervised()); err != nil {
		return err
	}
	if w.found.Level == Container {
		return seal()
	}
	if w.Temp() != "/tmp" {
		if err := os.MkdirAll(w.Temp(), 0o700); err != nil {
			return fmt.Errorf("make directory for temporary files: %w", err)
		}
	}
	w.sweep()
	w.tryLinks()
	return nil
}

func (w *Walls) start(c Command) (*Start, error) {
	if w.found.Level == Container {
		return &Start{Argv: c.Argv, Files: c.Files, Enter: func() error { return w.enterContainer(c) }}, nil
	}
	var shields []shield
	leave := func() {}
	if w.found.Level == Bwrap || w.found.mounts {
		var err error
		if shields, leave, err = w.shields(); err != nil {
			return nil, err
		}
	}
	if w.found.Level == Landlock {
		enter := func() error { return w.enterLandlock(c, shields) }
		return &Start{Argv: c.Argv, Files: c.Files, Enter: enter, Entered: w.found.mounts, close: []func(){leave}}, nil
	}
	s, err := w.bwrapCommand(c, shields)
	if err != nil {
		leave()
		return nil, err
	}
	s.close = append(s.close, leave)
	return s, nil
}

// filters are the seccomp programs, made once.
type filters struct {
	none, tcp seccomp.Filter
	own       *os.File // for bwrap
}

func makeFilters(clone3, handOver bool) (f filters, err error) {
	if f.none, err = seccomp.New(seccomp.Options{Sockets: seccomp.NoSockets, Clone3: clone3, SuperviseModes: handOver}); err != nil {
		return f, err
	}
	if f.tcp, err = seccomp.New(seccomp.Options{Sockets: seccomp.TCPSockets, Clone3: clone3, SuperviseModes: handOver}); err != nil {
		return f, err
	}
	own, err := seccomp.New(seccomp.Options{Sockets: seccomp.NamespaceSockets})
	if err != nil {
		return f, err
	}
	f.own, err = own.File()
	return f, err
}

func (f filters) of(c Command) seccomp.Filter {
	if c.TCP || len(c.Connect)+len(c.Bind) > 0 {
		return f.tcp
	}
	return f.none
}

// open opens bwrap's filter once more: a descriptor with a position of its own.
func (f filters) open() (*os.File, error) {
	again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.own.Fd()))
	if err != nil {
		return nil, fmt.Errorf("open seccomp filter: %w", err)
	}
	return again, nil
}

func (f filters) close() {
	if f.own != nil {
		f.own.Close()
	}
}

// try says whether a level works here, by running it.
func try(level Level) (Found, error) {
	switch level {
	case Bwrap:
		return tryBwrap()
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

func tryBwrap() (Found, error) {
	if _, err := exec.LookPath("bwrap"); err != nil {
		return Found{}, errors.New("bubblewrap is not installed (for example: apt install bubblewrap)")
	}
	w, remove, err := probe(Found{Level: Bwrap})
	if err != nil {
		return Found{}, err
	}
	defer remove()
	s, err := w.Start(Command{Argv: []string{"true"}, Dir: w.place.Workspace})
	if err != nil {
		return Found{}, err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Argv[0], s.Argv[1:]...)
	cmd.ExtraFiles, cmd.Env = s.Files, []string{"PATH=/usr/bin:/bin"}
	runtime.LockOSThread() // bubblewrap is killed when the thread that started it ends
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return Found{}, fmt.Errorf("%s: %w: %s", bwrapHelp, err, line)
	}
	return Found{Level: Bwrap, Reason: "bubblewrap works here"}, nil
}

func tryLandlock() (Found, error) {
	abi, err := landlock.LandlockGetABIVersion()
	if err != nil {
		return Found{}, fmt.Errorf("the kernel has no Landlock: %s", landlockHelp)
	}
	if abi < minABI {
		return Found{}, fmt.Errorf("the kernel's Landlock has version %d of at least %d: %s", abi, minABI, landlockHelp)
	}
	f := Found{Level: Landlock, Reason: "Landlock works here, with mounts of its own; commands cannot be given a network", mounts: true}
	if enterProbe(f) != nil {
		f.mounts = false
		f.Reason = "Landlock works here; without root's right to mount, new entries directly in the workspace's top folder and in .git are refused, and times of this user's other files can be changed, which bubblewrap avoids; commands cannot be given a network"
		if err := enterProbe(f); err != nil {
			return Found{}, fmt.Errorf("%w: %s", err, landlockHelp)
		}
	}
	if abi < 6 {
		f.Reason += "; before Linux 6.12 it does not keep commands from signalling other processes of this user"
	}
	return f, nil
}

// enterProbe walls in a thread that is then thrown away, and makes sure that the kernel refuses it something each time.
func enterProbe(f Found) error {
	w, remove, err := probe(f)
	if err != nil {
		return err
	}
	defer remove()
	s, err := w.Start(Command{Dir: w.place.Workspace})
	if err != nil {
		return err
	}
	defer s.Close()
	done := make(chan error)
	OnThread(func() {
		done <- func() error {
			if err := s.Enter(); err != nil {
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

// probe prepares a level for an empty place.
func probe(f Found) (w *Walls, remove func(), err error) {
	dir, err := os.MkdirTemp("", "pocketcoder-probe-")
	if err != nil {
		return nil, nil, fmt.Errorf("make directory to try it in: %w", err)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	p := Place{Workspace: filepath.Join(dir, "workspace"), Home: filepath.Join(dir, "home")}
	if err = errors.Join(os.Mkdir(p.Workspace, 0o700), os.Mkdir(p.Home, 0o700)); err == nil {
		w, err = Open(f, p)
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, nil, fmt.Errorf("try it in TMPDIR: %w", err)
	}
	return w, func() {
		w.Close()
		os.RemoveAll(dir)
	}, nil
}

func tryContainer() (Found, error) {
	if os.Getenv(ContainerMark) == "" {
		return Found{}, errors.New("the worker does not run in PocketCoder's sandbox image")
	}
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(mark); err == nil {
			return Found{Level: Container, Reason: "the worker runs in its own container"}, nil
		}
	}
	return Found{}, fmt.Errorf("%s is set, but nothing shows that this is a container of Docker or Podman", ContainerMark)
}

// OnThread runs fn in a goroutine that is locked to an OS thread, which ends with it. It is never the process's first
// thread: that one cannot end, and is taken for the whole process in /proc.
func OnThread(fn func()) {
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
