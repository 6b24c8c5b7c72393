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
type Walls struct {
	found     Found
	place     Place
	workspace *os.File // opened once: what has its name later may be another
	filters   filters
	stubs     stubs
	secrets   secrets
	follows   error // see FollowsLinks
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
type Start struct {
	Argv  []string
	Files []*os.File // descriptors from 3 on

	// Enter, when it is not nil, has to be called by a locked thread other than the process's first. That thread then starts
	// the command and is never used again.
	Enter func() error

	// Attributes, when it is not nil, adds what the process of Argv must be started with.
	Attributes func(*syscall.SysProcAttr)

	// Entered says that the thread is in Command.Dir after Enter, and must not be sent there by any other way. Bubblewrap
	// goes there by itself.
	Entered bool

	close []func()
}

// Close releases what the command kept in use.
func (s *Start) Close() {
	for _, c := range s.close {
		c()
	}
}

// Open prepares a level for a worker, and removes what one that was killed has left in the workspace.
func Open(f Found, p Place) (*Walls, error) {
	if err := closeOnExec(); err != nil {
		return nil, err
	}
	w := &Walls{found: f, place: p, secrets: newSecrets()}
	if f.Level == None || f.Level == "" {
		return w, nil
	}
	var err error
	if f.Level != Container {
		if w.place, err = p.check(); err != nil {
			return nil, err
		}
	}
	if w.workspace, err = os.Open(p.Workspace); err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	if err := w.open(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close frees what Open took.
func (w *Walls) Close() {
	if w.workspace != nil {
		w.workspace.Close()
	}
	w.filters.close()
	w.secrets.Close()
	w.stubs.clear()
}

// Clone3 says whether the thread that starts a command may use clone3(2) for it, without which it cannot start it in
// a cgroup.
func (w *Walls) Clone3() bool {
	return w.found.Level == None || w.found.Level == Bwrap || w.found.mounts
}

// Start makes everything ready for one command. The error is for a person.
func (w *Walls) Start(c Command) (*Start, error) {
	switch w.found.Level {
	case None:
		return &Start{Argv: c.Argv, Files: c.Files}, nil
	case "":
		return nil, fmt.Errorf("no command is run without isolation: %s", w.found.Reason)
	}
	if err := w.unchanged(); err != nil {
		return nil, err
	}
	return w.start(c)
}

// unchanged makes sure that the workspace's name still stands for the directory that was opened.
func (w *Walls) unchanged() error {
	now, err := os.Lstat(w.place.Workspace)
	if err != nil {
		return fmt.Errorf("workspace is gone: %w", err)
	}
	opened, err := w.workspace.Stat()
	if err != nil {
		return fmt.Errorf("look at workspace: %w", err)
	}
	real, err := filepath.EvalSymlinks(w.place.Workspace)
	if err != nil || real != w.place.Workspace || !os.SameFile(now, opened) {
		return fmt.Errorf("workspace %s is not the directory it was when the worker started: it was moved or replaced; start the worker again", w.place.Workspace)
	}
	return nil
}

// Temp is the directory for a command's temporary files.
func (w *Walls) Temp() string {
	switch {
	case w.found.Level == Bwrap, w.found.mounts:
		return "/tmp"
	case w.found.Level == Landlock:
		return filepath.Join(w.place.Home, ".tmp")
	}
	return os.TempDir()
}

// Path is a search path without the directories that a command cannot see.
func (w *Walls) Path(path string) string {
	var seen []string
	for _, dir := range filepath.SplitList(path) {
		if w.Shows(dir) {
			seen = append(seen, dir)
		}
	}
	return strings.Join(seen, ":")
}

// Shows says whether a command may read what lies at path.
func (w *Walls) Shows(path string) bool {
	return w.found.Level != Bwrap && w.found.Level != Landlock || w.place.reads(path)
}

// oneLine joins what went wrong.
func oneLine(errs []error) error {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return errors.New(strings.Join(texts, "; "))
}
