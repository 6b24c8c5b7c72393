package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Walls stand around the commands of one worker. Its methods may be called from many goroutines.
type Confinement struct {
	choice        Choice
	access        FileAccess
	workspace     *os.File // opened once: what has its name later may be another
	filters       filters
	placeholders  placeholders
	secrets       secrets
	noSymlinksErr error // see FollowsLinks
}

// Command is what is to run.
type Command struct {
	Argv     []string
	Dir      string     // where, inside the workspace or below Home, symlinks resolved
	Files    []*os.File // its descriptors from 3 on
	Terminal bool       // its stdio is its controlling terminal
	TCP      bool       // at container: it may use TCP. At bwrap it has a network of its own, at landlock see Connect and Bind
	Connect  []uint16   // at landlock: the TCP ports it may connect to, at whatever address
	Bind     []uint16   // at landlock: the TCP ports it may listen on
	Helper   string     // path of a program that is made visible as HelperPath, at bwrap
}

// HelperPath is where a command finds its Helper.
const HelperPath = "/run/pocketcoder"

// Start says how to start a Command. Close it when no process of the command is left.
type PreparedCommand struct {
	Argv  []string
	Files []*os.File // descriptors from 3 on

	// Enter, when it is not nil, has to be called by a locked thread other than the process's first. That thread then starts
	// the command and is never used again.
	Confine func() error

	// Attributes, when it is not nil, adds what the process of Argv must be started with.
	SetAttributes func(*syscall.SysProcAttr)

	// Entered says that the thread is in Command.Dir after Enter, and must not be sent there by any other way. Bubblewrap
	// goes there by itself.
	SetsDir bool

	cleanups []func()
}

// Close releases what the command kept in use.
func (prepared *PreparedCommand) Close() {
	for _, c := range prepared.cleanups {
		c()
	}
}

// Open prepares a level for a worker, and removes what one that was killed has left in the workspace.
func Open(choice Choice, access FileAccess) (*Confinement, error) {
	if err := setCloseOnExec(); err != nil {
		return nil, err
	}
	c := &Confinement{choice: choice, access: access, secrets: newSecrets()}
	if choice.Level == None || choice.Level == "" {
		return c, nil
	}
	var err error
	if choice.Level != Container {
		if c.access, err = access.resolve(); err != nil {
			return nil, err
		}
	}
	if c.workspace, err = os.Open(access.Workspace); err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	if err := c.prepareLevel(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close frees what Open took.
func (c *Confinement) Close() {
	if c.workspace != nil {
		c.workspace.Close()
	}
	c.filters.close()
	c.secrets.Close()
	c.placeholders.removeUnused()
}

// Clone3 says whether the thread that starts a command may use clone3(2) for it, without which it cannot start it in
// a cgroup.
func (c *Confinement) AllowsClone3() bool {
	return c.choice.Level == None || c.choice.Level == Bwrap || c.choice.canMount
}

// Start makes everything ready for one command. The error is for a person.
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

// unchanged makes sure that the workspace's name still stands for the directory that was opened.
func (c *Confinement) checkWorkspace() error {
	now, err := os.Lstat(c.access.Workspace)
	if err != nil {
		return fmt.Errorf("workspace is gone: %w", err)
	}
	opened, err := c.workspace.Stat()
	if err != nil {
		return fmt.Errorf("look at workspace: %w", err)
	}
	real, err := filepath.EvalSymlinks(c.access.Workspace)
	if err != nil || real != c.access.Workspace || !os.SameFile(now, opened) {
		return fmt.Errorf("workspace %s is not the directory it was when the worker started: it was moved or replaced; start the worker again", c.access.Workspace)
	}
	return nil
}

// Temp is the directory for a command's temporary files.
func (c *Confinement) TempDir() string {
	switch {
	case c.choice.Level == Bwrap, c.choice.canMount:
		return "/tmp"
	case c.choice.Level == Landlock:
		return filepath.Join(c.access.Home, ".tmp")
	}
	return os.TempDir()
}

// Path is a search path without the directories that a command cannot see.
func (c *Confinement) FilterPath(path string) string {
	var seen []string
	for _, dir := range filepath.SplitList(path) {
		if c.CanRead(dir) {
			seen = append(seen, dir)
		}
	}
	return strings.Join(seen, ":")
}

// Shows says whether a command may read what lies at path.
func (c *Confinement) CanRead(path string) bool {
	return c.choice.Level != Bwrap && c.choice.Level != Landlock || c.access.canRead(path)
}

// oneLine joins what went wrong.
func joinErrors(errs []error) error {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return errors.New(strings.Join(texts, "; "))
}
