package opencode

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"pocketcoder/sandbox/isolation"
)

// SnapshotDir returns the directory of the git directories in which OpenCode keeps its snapshots of the workspace.
func (s *Supervisor) SnapshotDir() string { return s.path("data", "opencode", "snapshot") }

// RunGit runs git with OpenCode's rights, because OpenCode can write the configuration of its git directories, which
// names programs. It returns the output. OpenCode must have been started. The time limit is that of OpenCode's git.
func (s *Supervisor) RunGit(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.GitLimit, defaultGitLimit))
	defer cancel()
	var stdout, stderr bytes.Buffer
	c := &child{exited: make(chan struct{})}
	var err error
	if c.prepared, err = s.confinement.Prepare(isolation.Command{Argv: append([]string{"git"}, args...),
		Dir: s.path("home")}); err != nil {
		return "", err
	}
	c.cmd = exec.Command(c.prepared.Argv[0], c.prepared.Argv[1:]...)
	c.cmd.ExtraFiles, c.cmd.Stdout, c.cmd.Stderr = c.prepared.Files, &stdout, &stderr
	if !c.prepared.SetsDir {
		c.cmd.Dir = s.path("home")
	}
	c.cmd.Env = []string{"PATH=" + s.searchPath(), "HOME=" + s.path("home"), "TMPDIR=" + s.path("tmp")}
	for name, value := range s.gitVariables() {
		c.cmd.Env = append(c.cmd.Env, name+"="+value)
	}
	if err := c.start(); err != nil {
		c.release()
		return "", err
	}
	select {
	case <-c.exited:
	case <-ctx.Done():
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
		<-c.exited
		return "", ctx.Err()
	}
	if c.err != nil {
		return "", fmt.Errorf("git: %w: %s", c.err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
