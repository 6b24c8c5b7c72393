package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"

	"pocketcoder/sandbox/inside"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// spawn starts the shell behind the walls. The thread that forks must outlive it, because the kernel sends the
// parent-death signal when that thread ends, not the process: so it stays locked until the shell has exited.
func (w *Worker) spawn(r wire.Request, t *tree, dir *os.File, real string) (*command, error) {
	c := &command{tree: t, grace: w.grace, exited: make(chan struct{})}
	stdio, err := c.open(r)
	for _, f := range stdio {
		defer f.Close()
	}
	if err != nil {
		return nil, err
	}
	walled, linked, err := w.walled(r, c, real)
	if linked != nil {
		defer linked.Close()
	}
	if err != nil {
		c.close()
		return nil, err
	}
	start, err := w.walls.Start(walled)
	if err != nil {
		c.close()
		return nil, err
	}
	c.leave, c.monitored = start.Close, w.config.Isolation.Level == isolation.Bwrap
	attr := &os.ProcAttr{Env: w.environment(r), Files: append(stdio, start.Files...), Sys: c.attributes()}
	attr.Sys.Setctty = r.Terminal != nil // stdin is the terminal
	if !start.Entered {
		attr.Dir = enter(dir, real)
	}
	started := make(chan error)
	w.onThread(start, func() {
		p, err := startWalled(start, attr)
		if err != nil {
			started <- err
			return
		}
		w.setShell(r.Exec, p.Pid) // before it is labelled: a labelled zombie that is no shell is reaped as an orphan
		if err := c.stick(p.Pid, w.config.Limits); err != nil {
			p.Wait()
			started <- err
			return
		}
		c.process, c.shell = p, p.Pid
		c.began.Store(true)
		started <- nil
		awaitExit(p.Pid)
		if c.link != nil {
			c.link.Close()
		}
		close(c.exited)
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

// walled is the command as the walls see it. linked is the end of its link, which it inherits.
func (w *Worker) walled(r wire.Request, c *command, dir string) (walled isolation.Command, linked *os.File, err error) {
	walled = isolation.Command{Argv: []string{w.config.Shell, "-c", r.Command}, Dir: dir, Terminal: r.Terminal != nil}
	if r.Terminal != nil && r.Command == "" {
		walled.Argv = interactive(w.config.Shell)
	}
	if r.Network == "" && !r.Ports {
		return walled, nil, nil
	}
	if r.Network != "" {
		if _, _, err := proxyAddress(r.Network); err != nil {
			return walled, nil, err
		}
	}
	switch w.config.Isolation.Level {
	case isolation.Bwrap:
		if walled.Helper, err = os.Executable(); err != nil {
			return walled, nil, err
		}
		if c.link, linked, err = inside.Open(); err != nil {
			return walled, nil, err
		}
		walled.Argv = inside.Argv(isolation.HelperPath, walled.Argv)
		walled.Files = []*os.File{linked}
	case isolation.Container:
		walled.TCP = true
	}
	return walled, linked, err
}

// interactive is a person's own shell. It reads no start-up files: commands could have written them.
func interactive(shell string) []string {
	if filepath.Base(shell) == "bash" {
		return []string{shell, "--norc", "--noprofile"}
	}
	return []string{shell}
}

// onThread runs fn on a thread that starts a command: one that goes behind walls is never used again.
func (w *Worker) onThread(start *isolation.Start, fn func()) {
	if start.Enter != nil {
		isolation.OnThread(fn)
		return
	}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		fn()
	}()
}

func startWalled(start *isolation.Start, attr *os.ProcAttr) (*os.Process, error) {
	if start.Enter != nil {
		if err := start.Enter(); err != nil {
			return nil, err
		}
	}
	return startStopped(start.Argv, attr)
}

// open returns stdin, stdout and stderr of the shell and keeps the other ends.
func (c *command) open(r wire.Request) (files []*os.File, err error) {
	if r.Terminal != nil {
		ours, theirs, err := openTerminal(*r.Terminal)
		c.stdout = ours
		return []*os.File{theirs, theirs, theirs}, err
	}
	stdin, err := os.Open(os.DevNull)
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

func (c *command) close() {
	for _, f := range []*os.File{c.stdout, c.stderr} {
		if f != nil {
			f.Close()
		}
	}
	if c.link != nil {
		c.link.Close()
	}
}
