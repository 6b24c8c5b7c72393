package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"

	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/netrelay"
	"pocketcoder/sandbox/wire"
)

// spawn starts the isolated shell. The forking thread stays locked until the shell has exited, because the kernel sends
// the parent-death signal when that thread ends.
func (w *Worker) spawn(r wire.Request, t *tree, dir *os.File, real string) (*command, error) {
	c := &command{tree: t, grace: w.grace, exited: make(chan struct{})}
	stdio, err := c.open(r)
	for _, f := range stdio {
		defer f.Close()
	}
	if err != nil {
		return nil, err
	}
	confined, linked, err := w.confinedCommand(r, c, real)
	if linked != nil {
		defer linked.Close()
	}
	if err != nil {
		c.close()
		return nil, err
	}
	leave := func() {}
	if w.config.Isolation.SharesLoopback {
		if confined.Loopback, leave, err = w.loopbacks.join(r); err != nil {
			c.close()
			return nil, err
		}
	}
	prepared, err := w.confinement.Prepare(confined)
	if err != nil {
		leave()
		c.close()
		return nil, err
	}
	c.release = func() { prepared.Close(); leave() }
	c.hasMonitor = w.config.Isolation.Level == isolation.Bwrap
	attr := &os.ProcAttr{Env: w.environment(r), Files: append(stdio, prepared.Files...), Sys: c.attributes()}
	attr.Sys.Setctty = r.Terminal != nil // stdin is the terminal
	if !prepared.SetsDir {
		attr.Dir = enter(dir, real)
	}
	started := make(chan error)
	w.onThread(prepared, func() {
		err := w.startShell(r, c, prepared, attr)
		started <- err
		if err == nil {
			c.runShell(r.Terminal != nil)
		}
	})
	if err := <-started; err != nil {
		c.close()
		if e := new(os.PathError); errors.As(err, &e) {
			err = e.Err
		}
		return nil, err
	}
	if r.Network != "" && c.link != nil {
		go c.serveProxy(r.Network, w.config.Log)
	}
	if r.Ports {
		w.setServing(r.Exec, c)
	}
	return c, nil
}

// startShell starts the isolated shell of a command with its limits. The shell does not run before runShell.
func (w *Worker) startShell(r wire.Request, c *command, prepared *isolation.PreparedCommand,
	attr *os.ProcAttr) error {
	p, err := startConfined(prepared, attr)
	if err != nil {
		return err
	}
	w.setShell(r.Exec, p.Pid) // first, because a labelled zombie that is not a shell is reaped as an orphan
	if err := c.apply(p.Pid, c.limits); err != nil {
		p.Wait()
		return err
	}
	c.process, c.shell = p, p.Pid
	c.started.Store(true)
	return nil
}

// runShell lets the shell run, and returns when it has exited. If the command has a monitor and no terminal, runShell
// lists what the command leaves running.
func (c *command) runShell(hasTerminal bool) {
	var exiting func()
	if c.hasMonitor && !hasTerminal {
		exiting = func() { c.left = c.listLeft() }
	}
	runToExit(c.shell, exiting)
	if c.link != nil {
		c.link.Close()
	}
	close(c.exited)
}

// confinedCommand returns the command to confine. linked is the end of the link that the command inherits.
func (w *Worker) confinedCommand(r wire.Request, c *command,
	dir string) (confined isolation.Command, linked *os.File, err error) {
	confined = isolation.Command{Argv: []string{w.config.Shell, "-c", r.Command}, Dir: dir, Terminal: r.Terminal != nil,
		ManagesWorktrees: r.ManagesWorktrees}
	if r.Terminal != nil && r.Command == "" {
		confined.Argv = interactive(w.config.Shell)
	}
	if r.Network == "" && !r.Ports {
		return confined, nil, nil
	}
	if r.Network != "" {
		if _, err := proxyAddress(r.Network); err != nil {
			return confined, nil, err
		}
	}
	switch w.config.Isolation.Level {
	case isolation.Bwrap:
		if confined.Helper, err = os.Executable(); err != nil {
			return confined, nil, err
		}
		if c.link, linked, err = netrelay.Open(); err != nil {
			return confined, nil, err
		}
		confined.Argv = netrelay.Argv(isolation.HelperPath, confined.Argv)
		confined.Files = []*os.File{linked}
	case isolation.Container:
		confined.TCP = true
	}
	return confined, linked, err
}

// interactive returns the arguments of a person's shell. It reads no start-up files, because commands could have
// written them.
func interactive(shell string) []string {
	if filepath.Base(shell) == "bash" {
		return []string{shell, "--norc", "--noprofile"}
	}
	return []string{shell}
}

// onThread runs fn on a thread that starts a command. A confined thread is not used again.
func (w *Worker) onThread(prepared *isolation.PreparedCommand, fn func()) {
	if prepared.Confine != nil {
		isolation.RunOnThread(fn)
		return
	}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		fn()
	}()
}

func startConfined(prepared *isolation.PreparedCommand, attr *os.ProcAttr) (*os.Process, error) {
	if prepared.Confine != nil {
		if err := prepared.Confine(); err != nil {
			return nil, err
		}
	}
	return startStopped(prepared.Argv, attr)
}

// open returns stdin, stdout and stderr of the shell and keeps the other ends.
func (c *command) open(r wire.Request) (files []*os.File, err error) {
	if r.Terminal != nil {
		ours, theirs, err := openTerminal(*r.Terminal)
		c.stdout = ours
		return []*os.File{theirs, theirs, theirs}, err
	}
	stdin, err := c.openInput(r)
	if err != nil {
		return nil, err
	}
	files = append(files, stdin)
	for _, ours := range []**os.File{&c.stdout, &c.stderr} {
		read, write, err := os.Pipe()
		if err != nil {
			c.close()
			return files, err
		}
		*ours = read
		files = append(files, write)
	}
	return files, nil
}

// openInput returns stdin of a command without a terminal: a pipe, or nothing to read.
func (c *command) openInput(r wire.Request) (stdin *os.File, err error) {
	if !r.Stdin {
		return os.Open(os.DevNull)
	}
	stdin, c.stdin, err = os.Pipe()
	return stdin, err
}

func (c *command) close() {
	for _, f := range []*os.File{c.stdin, c.stdout, c.stderr} {
		if f != nil {
			f.Close()
		}
	}
	if c.link != nil {
		c.link.Close()
	}
}
