package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/wire"
)

// Markers in the environment of every process of a command. The worker finds the process by them.
const (
	execMarker      = "POCKETCODER_EXEC"      // the exec id
	workerMarker    = "POCKETCODER_WORKER"    // the worker, see identity
	workspaceMarker = "POCKETCODER_WORKSPACE" // absolute, symlinks resolved
)

var systemPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// environment returns the whole environment of a command. Of the worker's environment it uses only PATH, so no secret
// can leak, whatever its name.
//
// HOME is not the user's home, which has keys and credentials, and not in the workspace, where caches and dot files
// would appear in the project. It is the same for all commands, so that package caches work.
func (w *Worker) environment(r wire.Request) []string {
	name, terminal := userName(), "dumb"
	more := w.proxyEnvironment(r)
	if r.Terminal != nil {
		terminal = cmp.Or(r.Terminal.Kind, terminal)
		more = append(more, "HISTFILE=/dev/null", `PS1=\u:\w\$ `) // a shell history would be a second, unredacted record
	}
	return append(more,
		"PATH="+w.path,
		"HOME="+w.config.Home,
		"PWD="+r.Cwd,
		"TMPDIR="+w.confinement.TempDir(),
		"SHELL="+w.config.Shell,
		"USER="+name,
		"LOGNAME="+name,
		"GIT_CONFIG_GLOBAL="+gitConfigFile(w.git),
		"LANG=C.UTF-8",
		"LC_ALL=C.UTF-8",
		"TERM="+terminal,
		"OPENCODE=1", // as in OpenCode's own shell; tools disable prompts and colours for an agent
		"AGENT=1",
		execMarker+"="+r.Exec,
		workerMarker+"="+w.id.marker,
		workspaceMarker+"="+w.workspace,
	)
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "user"
}

// commandPath returns the worker's PATH and the missing directories of the system. It omits relative entries, which
// would depend on the command's directory.
func commandPath(own string) string {
	var dirs []string
	for _, dir := range append(filepath.SplitList(own), systemPath...) {
		if filepath.IsAbs(dir) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, ":")
}

// makeGitConfig creates a directory with the git configuration of commands and returns it with its lock. The
// configuration holds the operator's name and email from git's global configuration, or user. It also tells git to
// ignore bare repositories that are not named. Commands must not use a configuration in HOME: all chats write there,
// and the next `git status`, which needs no approval, would run a program that it names. The lock holds until the
// process ends. makeGitConfig removes the directories of killed workers.
func makeGitConfig(parent, user string) (dir string, lock *os.File, err error) {
	removeUnlockedGitConfigs(parent)
	name, email := gitSetting("user.name"), gitSetting("user.email")
	name = cmp.Or(name, user)
	email = cmp.Or(email, user+"@localhost")
	made, err := os.MkdirTemp(parent, "pocketcoder-git-")
	if err != nil {
		return "", nil, fmt.Errorf("make git configuration: %w", err)
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ")
	text := fmt.Sprintf("[user]\n\tname = \"%s\"\n\temail = \"%s\"\n[safe]\n\tbareRepository = explicit\n",
		quote.Replace(name), quote.Replace(email))
	err = os.WriteFile(gitConfigFile(made), []byte(text), 0o644)
	if err == nil {
		lock, err = lockDir(made)
	}
	if err == nil { // locked before it has the name by which it is found
		dir = made + ".locked"
		err = os.Rename(made, dir)
	}
	if err != nil {
		os.RemoveAll(made)
		lock.Close() // of nil it does nothing
		return "", nil, fmt.Errorf("make git configuration: %w", err)
	}
	return dir, lock, nil
}

// lockedGitConfigs is how directories are named that a living worker has locked.
const lockedGitConfigs = "pocketcoder-git-*.locked"

// removeUnlockedGitConfigs removes what workers of this user have left behind. Every user may write in parent, so it
// removes only the file that workers make and an empty directory, and follows no link.
func removeUnlockedGitConfigs(parent string) {
	entries, _ := os.ReadDir(parent) // an unreadable directory has nothing to remove
	for _, e := range entries {
		if ours, _ := filepath.Match(lockedGitConfigs, e.Name()); !ours {
			continue
		}
		path := filepath.Join(parent, e.Name())
		lock, err := lockDir(path)
		if err != nil {
			continue
		}
		var owner unix.Stat_t
		fd := int(lock.Fd())
		if unix.Fstat(fd, &owner) == nil && int(owner.Uid) == os.Getuid() {
			unix.Unlinkat(fd, filepath.Base(gitConfigFile(path)), 0)
			unix.Rmdir(path)
		}
		lock.Close()
	}
}

// lockDir fails when another has locked it, or it is a link. The lock is gone with the process.
func lockDir(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// gitConfigFile is the path of the file in a directory that makeGitConfig made.
func gitConfigFile(dir string) string { return filepath.Join(dir, "config") }

// gitSetting returns a setting of the person's git, without the settings of repositories. It is empty without git or
// without the setting.
func gitSetting(key string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", "config", "--global", "--get", key)
	cmd.Dir = "/"
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
