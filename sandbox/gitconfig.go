package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

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
