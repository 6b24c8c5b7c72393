package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"pocketcoder/sandbox/isolation/protection"
)

// Confinement is an isolation level that is prepared for one workspace. Its methods are safe for concurrent use.
type Confinement struct {
	choice        Choice
	access        FileAccess
	workspace     *os.File // opened once, because its path can name another directory later
	filters       filters
	protection    protection.Workspace
	noSymlinksErr error // see NoSymlinksError
}

type Command struct {
	Argv     []string
	Dir      string     // in the workspace or below Home, symlinks resolved
	Files    []*os.File // its descriptors from 3
	Terminal bool       // stdin, stdout and stderr are its controlling terminal
	// at container: allow TCP. At bwrap a command has its own network. At landlock see Connect and Bind
	TCP     bool
	Connect []uint16 // at landlock: the TCP ports to which it may connect, at any address
	Bind    []uint16 // at landlock: the TCP ports it may listen on
	Helper  string   // at bwrap: path of a program to show at HelperPath
	// at bwrap: the network that the command shares with others; nil for its own. It must stay open
	// until the command has started
	Loopback *Loopback
	// it adds and removes git worktrees, so it can change where git keeps them. No one but PocketCoder chooses its Argv
	ManagesWorktrees bool
}

// HelperPath is the path of Command.Helper as the command sees it.
const HelperPath = "/run/pocketcoder"

// PreparedCommand says how to start a Command. The caller closes it after the last process of the command has ended.
type PreparedCommand struct {
	Argv  []string
	Files []*os.File // descriptors from 3

	// Confine confines the calling thread. If it is not nil, the caller calls it on a locked thread other than the
	// process's first. That thread starts the command and is never used again.
	Confine func() error

	// SetAttributes, if not nil, adds the attributes that the process of Argv needs.
	SetAttributes func(*syscall.SysProcAttr)

	// SetsDir reports whether Confine or Argv changes to Command.Dir. The caller must then not set the directory.
	SetsDir bool

	cleanups []func()
}

// Close frees what the command used.
func (p *PreparedCommand) Close() {
	for _, cleanup := range p.cleanups {
		cleanup()
	}
}

// Open prepares a level for a worker. It removes what a killed worker left in the workspace.
func Open(choice Choice, access FileAccess) (*Confinement, error) {
	if err := setCloseOnExec(); err != nil {
		return nil, err
	}
	c := &Confinement{choice: choice, access: access}
	if choice.Level == None || choice.Level == "" {
		return c, nil
	}
	var err error
	if choice.Level != Container {
		if c.access, err = access.resolve(); err != nil {
			return nil, err
		}
	}
	c.protection = protection.Workspace{Dir: c.access.Workspace, LongRunning: c.access.LongRunning}
	if c.workspace, err = os.Open(c.access.Workspace); err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	if err := c.prepareLevel(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close frees what Open allocated.
func (c *Confinement) Close() {
	if c.workspace != nil {
		c.workspace.Close()
	}
	c.filters.close()
	c.protection.RemoveUnused()
}

// AllowsClone3 reports whether a confined thread may call clone3(2). Without clone3 it cannot start a command in a
// cgroup.
func (c *Confinement) AllowsClone3() bool {
	return c.choice.Level == None || c.choice.Mounts()
}

// Prepare prepares the start of one command. Its error is shown to a person.
func (c *Confinement) Prepare(cmd Command) (*PreparedCommand, error) {
	switch c.choice.Level {
	case None:
		return &PreparedCommand{Argv: cmd.Argv, Files: cmd.Files}, nil
	case "":
		return nil, fmt.Errorf("no command is run without isolation: %s", c.choice.Reason)
	}
	if err := c.checkWorkspace(); err != nil {
		return nil, err
	}
	return c.prepare(cmd)
}

// checkWorkspace returns an error if the workspace's path no longer names the directory that Open opened.
func (c *Confinement) checkWorkspace() error {
	now, err := os.Lstat(c.access.Workspace)
	if err != nil {
		return fmt.Errorf("workspace is gone: %w", err)
	}
	opened, err := c.workspace.Stat()
	if err != nil {
		return fmt.Errorf("stat workspace: %w", err)
	}
	real, err := filepath.EvalSymlinks(c.access.Workspace)
	if err != nil || real != c.access.Workspace || !os.SameFile(now, opened) {
		return fmt.Errorf("workspace %s is not the directory it was when the worker started: it was moved or replaced; start the worker again", c.access.Workspace)
	}
	return nil
}

// TempDir returns the directory for a command's temporary files.
func (c *Confinement) TempDir() string {
	switch {
	case c.choice.Mounts():
		return "/tmp"
	case c.choice.Level == Landlock:
		return filepath.Join(c.access.Home, ".tmp")
	}
	return os.TempDir()
}

// FilterPath returns a search path without the directories that a command cannot read.
func (c *Confinement) FilterPath(path string) string {
	var seen []string
	for _, dir := range filepath.SplitList(path) {
		if c.CanRead(dir) {
			seen = append(seen, dir)
		}
	}
	return strings.Join(seen, ":")
}

// CanRead reports whether a command can read the file at path.
func (c *Confinement) CanRead(path string) bool {
	return c.choice.Level != Bwrap && c.choice.Level != Landlock || c.access.canRead(path)
}

func joinErrors(errs []error) error {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return errors.New(strings.Join(texts, "; "))
}
