// Package datadir is the data directory of an installation: its layout, who may use it, and how to reach the system
// that runs on it.
//
// Promises: one process at a time uses a directory. Files of the system are for their owner alone. A file is written
// whole or not at all. A directory in which a newer version has stored data is refused.
//
// It must not know the content of the files, except for running.json.
package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/atomicfile"
)

// Version is the version of the data directory's layout and of what is stored in it: events, streams and secrets. The
// directory has it in its file "version". Raise it when an older pocketcoder cannot read what this one stores. The
// older one then refuses the directory. This one opens every lower version.
const Version = 2

// Dir is where everything of an installation is kept. It is for its owner alone.
//
//	version          see Version
//	lock             held by the process that runs
//	running.json     how to reach it
//	keys/            nkey seeds, one for each kind of process; the key pair for Web Push
//	nats/            the log
//	nats-address     where it was served last
//	log-note.json    what is known of the log outside NATS: how far it is, and what it has lost
//	lost-events/     a report and the damaged files for each loss
//	readmodels/      what is shown, computed from the log; programs that only read it need no other directory
//	opencode/        OpenCode's home, configuration, log, and in run/ the socket where pocketcoder-shell asks; npm/ when it was installed by us;
//	                 damaged/ with databases that were moved aside
//	home/            HOME of the commands, who share it
//	quarantine/      protected names that commands created in the workspace, until a person decides about them
//	projects/ID/     opencode/, home/ and quarantine/ of a project other than the first, whose they are above
//	bin/             pocketcoder-shell and its source, when it was built by us
//	run/             the socket at which the command line reaches the API
//	tmux/            the socket of what "attach" shows
//	history          what was typed in conversations at a terminal
//	ssh/             authorized_keys, and the SSH server's host key and configuration
//	unfinished       which command is unfinished and left the directory unusable
type Dir string

// Path returns the path of a file of the directory.
func (d Dir) Path(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// Project has the directories of one project: of its OpenCode, its commands and its worker.
type Project struct{ OpenCode, Home, Quarantine string }

// Project returns the directories of a project. The first one has those of versions without projects.
func (d Dir) Project(id string) Project {
	if id == events.DefaultEngine {
		return Project{d.Path("opencode"), d.Path("home"), d.Path("quarantine")}
	}
	own := d.Path("projects", id)
	return Project{filepath.Join(own, "opencode"), filepath.Join(own, "home"), filepath.Join(own, "quarantine")}
}

// Projects returns the directories of the first project, and of each other one that had an engine here.
func (d Dir) Projects() (all []Project) {
	all = []Project{d.Project(events.DefaultEngine)}
	others, _ := filepath.Glob(d.Path("projects", "*")) // the pattern is valid
	for _, path := range others {
		all = append(all, d.Project(filepath.Base(path)))
	}
	return all
}

func (d Dir) ReadModels() string { return d.Path("readmodels") }

// APISocket returns the path of the socket where the command line reaches the API.
func (d Dir) APISocket() string { return d.Path("run", "api.sock") }

// Running is what other programs on the machine must know about a running system.
type Running struct {
	PID       int       `json:"pid"`
	Started   time.Time `json:"started"`
	Version   string    `json:"version"`
	NATS      string    `json:"nats"` // URL for clients with a key of keys/
	HTTP      string    `json:"http"` // URL
	Workspace string    `json:"workspace"`
}

// Prepare makes the directory, or checks that it is one of ours. It may be in use.
func (d Dir) Prepare() error {
	err := os.MkdirAll(string(d), 0o700)
	if err == nil {
		err = d.checkOurs() // before anything in it is changed
	}
	if err == nil {
		err = d.tighten()
	}
	if err == nil {
		err = d.checkVersion()
	}
	if err != nil {
		return fmt.Errorf("open data directory %s: %w", d, err)
	}
	return nil
}

// Open prepares the directory, and holds it for this process. It returns an error if a command that changes the whole
// directory is unfinished.
func (d Dir) Open() (release func(), err error) {
	if release, err = d.OpenUnfinished(); err != nil {
		return nil, err
	}
	if u, err := d.Unfinished(); err != nil || u != nil {
		release()
		if err == nil {
			err = fmt.Errorf("the %s of it is unfinished; run it again: %s", u.What, u.Command)
		}
		return nil, fmt.Errorf("open data directory %s: %w", d, err)
	}
	return release, nil
}

// UnfinishedCommand is a command that leaves the directory unusable until it ends.
type UnfinishedCommand struct {
	What    string `json:"what"`    // restore or erasure
	Command string `json:"command"` // that ends it
}

// Unfinished returns the unfinished command, nil if there is none.
func (d Dir) Unfinished() (*UnfinishedCommand, error) {
	body, err := os.ReadFile(d.Path("unfinished"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var u UnfinishedCommand
	if err := json.Unmarshal(body, &u); err != nil {
		return nil, fmt.Errorf("read %s: %w", d.Path("unfinished"), err)
	}
	return &u, nil
}

// Begin makes Open refuse the directory until Finish.
func (d Dir) Begin(u UnfinishedCommand) error {
	body, err := json.Marshal(u)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(d.Path("unfinished"), append(body, '\n'))
}

// Finish syncs parts of the directory to disk, and lets Open take it.
func (d Dir) Finish(parts ...string) error {
	for _, part := range parts {
		if err := SyncTree(d.Path(part)); err != nil {
			return err
		}
	}
	if err := atomicfile.SyncDir(string(d)); err != nil {
		return err
	}
	return errors.Join(os.Remove(d.Path("unfinished")), atomicfile.SyncDir(string(d)))
}

// SyncTree syncs a directory, and the files and directories below it, to disk.
func SyncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() && !entry.Type().IsRegular() {
			return err
		}
		return atomicfile.SyncDir(path)
	})
}

// InUse means that a running system has the data directory.
type InUse struct{ Running }

func (u InUse) Error() string {
	return fmt.Sprintf("it is in use by pid %d (%s); stop that, or choose another with --data", u.PID, u.HTTP)
}

// OpenUnfinished is Open for the command that continues an unfinished one.
func (d Dir) OpenUnfinished() (release func(), err error) {
	fail := func(err error) (func(), error) { return nil, fmt.Errorf("open data directory %s: %w", d, err) }
	if err := d.Prepare(); err != nil {
		return nil, err
	}
	unlock, err := atomicfile.Lock(d.Path("lock"))
	if errors.Is(err, atomicfile.ErrLocked) {
		if r, err := d.Running(); err == nil {
			return fail(InUse{r})
		}
		return fail(errors.New("it is in use by another process; stop that, or choose another with --data"))
	}
	if err != nil {
		return fail(err)
	}
	// Only now, because another process may have used it. What is stored from here on has this version.
	if err = d.checkVersion(); err == nil {
		err = d.writeVersion()
	}
	if err != nil {
		unlock()
		return fail(err)
	}
	return func() {
		os.Remove(d.Path("running.json"))
		unlock()
	}, nil
}

// checkOurs returns an error if the directory holds files and was not made by pocketcoder.
func (d Dir) checkOurs() error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return err
	}
	foreign := ""
	for _, e := range entries {
		switch name := e.Name(); {
		case name == "version":
			return nil
		// an interrupted start leaves the lock, a restore its mark, a file system lost+found
		case name != "lock" && name != "unfinished" && name != "lost+found" && !slices.Contains(othersParts, name):
			foreign = name
		}
	}
	if foreign != "" {
		return fmt.Errorf("it holds %q and is not a data directory of pocketcoder; choose an empty directory, or a new one, with --data", foreign)
	}
	return nil
}

// othersParts are the parts in which OpenCode, npm, commands (HOME) and the worker (quarantine) store files.
// Only the directory itself keeps other users away from them.
var othersParts = []string{"home", "npm", "opencode", "projects", "quarantine"}

// tighten takes all rights of other users from the directory and from our files in it. It returns an error if the
// directory belongs to another user, who could take it back.
func (d Dir) tighten() error {
	info, err := os.Stat(string(d))
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return errors.New("it is not a directory; choose another with --data")
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return fmt.Errorf("it belongs to user %d, and this process runs as user %d; choose another with --data", owner,
			os.Geteuid())
	}
	root := string(d) + "/" // a link to a directory is followed
	tightenOne := func(path string, entry fs.DirEntry) error {
		if entry.IsDir() && slices.Contains(othersParts, strings.TrimPrefix(path, root)) {
			return fs.SkipDir
		}
		info, err := entry.Info()
		if err != nil || info.Mode()&fs.ModeSymlink != 0 || info.Mode()&0o077 == 0 {
			return err
		}
		return os.Chmod(path, info.Mode()&^0o077)
	}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = tightenOne(path, entry)
		}
		if errors.Is(err, fs.ErrNotExist) { // a running system creates and removes files
			return nil
		}
		return err
	})
}

// Usable returns an error if the owner lacks rights in the directory or other users have any. Commands that run as the
// same user are kept from changing it; another program of this user is not.
func (d Dir) Usable() error {
	keys, err := os.ReadDir(d.Path("keys"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	paths := []string{string(d), d.Path("nats"), d.Path("keys")}
	for _, key := range keys {
		paths = append(paths, d.Path("keys", key.Name()))
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) && path != string(d) {
			continue // with an external NATS there is no log here
		}
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if info.IsDir() {
			want = 0o700
		}
		if got := info.Mode().Perm(); got&want != want || got&0o077 != 0 {
			return fmt.Errorf("%s has mode %04o; set it with: chmod %o %s", path, got, want, path)
		}
	}
	return nil
}

func (d Dir) checkVersion() error {
	got, err := os.ReadFile(d.Path("version"))
	if errors.Is(err, fs.ErrNotExist) {
		return d.writeVersion()
	}
	if err != nil {
		return err
	}
	return CheckVersion(string(got))
}

// CheckVersion returns an error unless this pocketcoder can read a directory whose file "version" has this text.
func CheckVersion(text string) error {
	v, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || v < 1 {
		return fmt.Errorf("its file version contains %q instead of a number; restore the file from a backup, or choose another --data", text)
	}
	if v > Version {
		return fmt.Errorf("a newer pocketcoder has stored data of version %d in it, and this pocketcoder knows versions up to %d; use the newer one, or another --data", v, Version)
	}
	return nil
}

func (d Dir) writeVersion() error {
	return atomicfile.Write(d.Path("version"), fmt.Appendf(nil, "%d\n", Version))
}

// Announce says how to reach this process.
func (d Dir) Announce(r Running) error {
	body, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(d.Path("running.json"), append(body, '\n'))
}

var ErrNotRunning = errors.New("nothing runs on this data directory; start it with: pocketcoder up")

// Running reads how to reach the process that runs.
func (d Dir) Running() (Running, error) {
	var r Running
	body, err := os.ReadFile(d.Path("running.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("%s: %w", d, ErrNotRunning)
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("read %s: %w", d.Path("running.json"), err)
	}
	if err := syscall.Kill(r.PID, 0); errors.Is(err, syscall.ESRCH) {
		return r, fmt.Errorf("%s: %w (pid %d is gone)", d, ErrNotRunning, r.PID)
	}
	return r, nil
}

// Absolute makes a path absolute. It fails only when the current directory is gone, and then opening the path says so.
func Absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
