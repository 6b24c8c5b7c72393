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

// OpenCode runs git in the workspace, outside the sandbox. Files that a command wrote there must not make git run a
// program. The git commands of OpenCode need no other program, with three exceptions for which git starts a second
// git: the status of a nested repository (whose configuration can name programs, such as filters), fetching missing
// objects, and maintenance. Git looks for the second git in GIT_EXEC_PATH first. That directory has the inert git,
// which does nothing.

func (s *Supervisor) inertGitDir() string { return s.path("git") }

//go:embed git.sh
var limitedGit string

// defaultGitLimit is the time limit of each git of OpenCode. Listing 80,000 files took 0.7 s. Adding them to the first
// snapshot took 165 s of processor time, which grows with the square of their number. So a workspace of about 40,000
// files stays within the limit.
const defaultGitLimit = time.Minute

// limitedGitDir returns the directory of the git that OpenCode runs.
func (s *Supervisor) limitedGitDir() string { return filepath.Join(s.inertGitDir(), "limited") }

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
		s.Logger.Warn("OpenCode's git took too long in the workspace. Turns continue, but their changes to files cannot be undone. "+
			"Look for a FIFO named .gitignore or .gitattributes, or a very long one", "command", command)
	}
	return last
}

// gitSettings override the git configuration of the workspace and of the machine. git-lfs is disabled: it runs git
// itself, which would fail with the inert git, so snapshots hold its files as they are on disk. Git ignores a bare
// repository that it finds in the workspace, because ordinary tracked files can form one. Git treats files above
// core.bigFileThreshold as binary, so that OpenCode makes no text diff of them at the end of a turn, which would block
// its thread.
var gitSettings = [][2]string{
	{"core.fsmonitor", "false"}, {"core.bigFileThreshold", "256k"}, {"core.hooksPath", os.DevNull}, {"safe.bareRepository", "explicit"},
	{"filter.lfs.process", ""}, {"filter.lfs.clean", ""}, {"filter.lfs.smudge", ""}, {"filter.lfs.required", "false"},
}

// gitVariables is what git finds in OpenCode's environment.
func (s *Supervisor) gitVariables() map[string]string {
	env := map[string]string{"GIT_EXEC_PATH": s.inertGitDir(), "GIT_CONFIG_COUNT": strconv.Itoa(len(gitSettings))}
	for i, setting := range gitSettings {
		n := strconv.Itoa(i)
		env["GIT_CONFIG_KEY_"+n], env["GIT_CONFIG_VALUE_"+n] = setting[0], setting[1]
	}
	return env
}

// makeInertGit creates the inert git again. It returns an error if git could not execute it, because git would then
// use the next one on PATH.
func (s *Supervisor) makeInertGit() error {
	dir := s.inertGitDir()
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
	// Not a link to true: true can be a multi-call program, which selects its function by its name.
	if err := os.WriteFile(git, []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil {
		return err
	}
	err := exec.Command(git).Run()
	// a process that was just started may still have it open
	for tries := 0; errors.Is(err, syscall.ETXTBSY) && tries < 100; tries++ {
		time.Sleep(10 * time.Millisecond)
		err = exec.Command(git).Run()
	}
	if err != nil {
		return fmt.Errorf("run a program in %s (is it on a file system mounted noexec?): %w", dir, err)
	}
	return s.makeLimitedGit()
}
