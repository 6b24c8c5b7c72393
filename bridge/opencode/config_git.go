package opencode

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// OpenCode runs git in the workspace, outside the sandbox: nothing that a command left there may make git run a program. What
// git does itself for OpenCode needs no other program. It starts another git for what is left: the status of a repository
// inside the workspace, whose configuration names programs (filters) and is obeyed; fetching what is missing; tidying up. That
// other git is looked for in GIT_EXEC_PATH first, and there is one that does nothing.

func (s *Supervisor) otherGitDir() string { return s.path("git") }

// gitSettings overrule what the workspace's .git/config and the machine's say, by git's name for each. git-lfs, which many
// machines have as a filter, runs git itself and would fail at ours: such files are kept in snapshots as they are on disk.
// Git ignores a bare repository that it finds in the workspace, because ordinary tracked files can form one. Git calls larger files
// than core.bigFileThreshold binary: OpenCode makes no text diff of them at the end of a turn, which would keep its thread busy.
var gitSettings = [][2]string{
	{"core.fsmonitor", "false"}, {"core.bigFileThreshold", "256k"}, {"core.hooksPath", os.DevNull}, {"safe.bareRepository", "explicit"},
	{"filter.lfs.process", ""}, {"filter.lfs.clean", ""}, {"filter.lfs.smudge", ""}, {"filter.lfs.required", "false"},
}

// gitEnvironment is what git finds in OpenCode's environment.
func (s *Supervisor) gitEnvironment() map[string]string {
	env := map[string]string{"GIT_EXEC_PATH": s.otherGitDir(), "GIT_CONFIG_COUNT": strconv.Itoa(len(gitSettings))}
	for i, setting := range gitSettings {
		n := strconv.Itoa(i)
		env["GIT_CONFIG_KEY_"+n], env["GIT_CONFIG_VALUE_"+n] = setting[0], setting[1]
	}
	return env
}

// makeOtherGit makes the git that does nothing, anew. One that git would pass over, taking the next on PATH, is an error.
func (s *Supervisor) makeOtherGit() error {
	dir := s.otherGitDir()
	if strings.ContainsRune(dir, os.PathListSeparator) { // git puts it on PATH
		return fmt.Errorf("the directory %s holds %q, which separates directories", dir, os.PathListSeparator)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	git := filepath.Join(dir, "git")
	// Not a link to true: where that is one program with others, it goes by the name it is called with.
	if err := os.WriteFile(git, []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil {
		return err
	}
	err := exec.Command(git).Run()
	for tries := 0; errors.Is(err, syscall.ETXTBSY) && tries < 100; tries++ { // a process started just now has it open still
		time.Sleep(10 * time.Millisecond)
		err = exec.Command(git).Run()
	}
	if err != nil {
		return fmt.Errorf("run a program in %s (is it on a file system mounted noexec?): %w", dir, err)
	}
	return nil
}
