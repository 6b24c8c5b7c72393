package opencode

import (
	"cmp"
	_ "embed"
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

// OpenCode runs git in the workspace, outside the sandbox: nothing that a command left there may make git run a
// program. What git does itself for OpenCode needs no other program. It starts another git for what is left: the
// status of a repository inside the workspace, whose configuration names programs (filters) and is obeyed; fetching
// what is missing; tidying up. That other git is looked for in GIT_EXEC_PATH first, and there is one that does
// nothing.

func (s *Supervisor) otherGitDir() string { return s.path("git") }

//go:embed git.sh
var limitedGit string

// defaultGitLimit bounds each git of OpenCode. To list 80,000 files took 0.7 s. To add as many to the first snapshot
// took 165 s of processor time, which grows with the square of their number. So about 40,000 are done in time.
const defaultGitLimit = time.Minute

// limitedGitDir has the git that OpenCode runs.
func (s *Supervisor) limitedGitDir() string { return filepath.Join(s.otherGitDir(), "limited") }

// makeLimitedGit makes the git that OpenCode runs, unless the system has no git.
func (s *Supervisor) makeLimitedGit() error {
	if err := os.Mkdir(s.limitedGitDir(), 0o700); err != nil {
		return err
	}
	if _, err := exec.LookPath("git"); err != nil {
		return nil
	}
	limit := cmp.Or(s.GitLimit, defaultGitLimit)
	return os.WriteFile(filepath.Join(s.limitedGitDir(), "git"), fmt.Appendf(nil, limitedGit, int(limit.Seconds())), 0o700)
}

// reportSlowGit logs which git commands have run into their limit after since. It returns the time of the last one.
func (s *Supervisor) reportSlowGit(since time.Time) time.Time {
	last := since
	files, _ := os.ReadDir(s.path("tmp"))
	for _, file := range files {
		command, slow := strings.CutPrefix(file.Name(), "slow-git-")
		info, err := file.Info()
		if !slow || err != nil || !info.ModTime().After(since) {
			continue
		}
		if info.ModTime().After(last) {
			last = info.ModTime()
		}
		s.Logger.Warn("OpenCode's git took too long in the workspace. Turns go on, but their changes to files cannot be undone. "+
			"Look for a FIFO named .gitignore or .gitattributes, or a very long one", "command", command)
	}
	return last
}

// gitSettings overrule what the workspace's .git/config and the machine's say, by git's name for each. git-lfs, which
// many machines have as a filter, runs git itself and would fail at ours: such files are kept in snapshots as they are
// on disk. Git ignores a bare repository that it finds in the workspace, because ordinary tracked files can form one.
// Git calls larger files than core.bigFileThreshold binary: OpenCode makes no text diff of them at the end of a turn,
// which would keep its thread busy.
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

// makeOtherGit makes the git that does nothing, anew. One that git would pass over, taking the next on PATH, is an
// error.
func (s *Supervisor) makeOtherGit() error {
	dir := s.otherGitDir()
	if strings.ContainsRune(dir, os.PathListSeparator) { // git puts dir on PATH
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
	// a process started just now has it open still
	for tries := 0; errors.Is(err, syscall.ETXTBSY) && tries < 100; tries++ {
		time.Sleep(10 * time.Millisecond)
		err = exec.Command(git).Run()
	}
	if err != nil {
		return fmt.Errorf("run a program in %s (is it on a file system mounted noexec?): %w", dir, err)
	}
	return s.makeLimitedGit()
}
