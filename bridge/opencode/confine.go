package opencode

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"pocketcoder/bridge/opencode/shellsocket"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/netrelay"
)

// The directories below Dir that OpenCode may write, and those that it may only read.
var (
	writtenDirs = []string{"tmp", "data", "state", "cache"}
	readDirs    = []string{"config", "git", "bin", "run"} // run has the socket of ShellAddress
)

func (s *Supervisor) makeDirs() error {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(s.Dir)
	if err != nil {
		return err
	}
	s.aliases = append(s.aliases, s.Dir)
	s.Dir = real
	for _, dir := range append(append([]string{"home"}, writtenDirs...), readDirs...) {
		if err := os.MkdirAll(s.path(dir), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// isolate prepares the isolation that all starts of OpenCode use.
func (s *Supervisor) isolate() (*isolation.Confinement, error) {
	if s.Isolation.Level == isolation.None {
		return isolation.Open(s.Isolation, isolation.FileAccess{})
	}
	workspace, err := filepath.EvalSymlinks(s.Workspace)
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	access := isolation.FileAccess{Workspace: workspace, Home: s.path("home"), Aliases: append(s.aliases, s.Workspace),
		Expose: s.Expose, LongRunning: true,
		NoSymlinks: append(slices.Clone(s.Expose), workspace)}
	for _, dir := range writtenDirs {
		access.Writable = append(access.Writable, s.path(dir))
	}
	for _, dir := range readDirs {
		access.Expose = append(access.Expose, s.path(dir))
	}
	for _, program := range []*string{&s.Tools.OpenCode, &s.Tools.Ripgrep} {
		if *program, err = filepath.EvalSymlinks(*program); err != nil {
			return nil, err
		}
		if dir := installationOf(*program); !isolation.Visible(dir, access.Expose) {
			access.Expose = append(access.Expose, dir)
		}
	}
	confinement, err := isolation.Open(s.Isolation, access)
	if err == nil && confinement.NoSymlinksError() != nil {
		s.Logger.Warn("OpenCode can follow symbolic links of the workspace, but reads none that is there when a tool is called", "cause", confinement.NoSymlinksError())
	}
	return confinement, err
}

// Visible returns a function that reports whether a path outside the workspace exists for an OpenCode at an isolation
// level, nil when OpenCode is not confined to some files. expose are further directories that it may read. One of them
// is Supervisor.Dir, where OpenCode keeps long outputs of tools, to read them again.
func Visible(level isolation.Level, expose []string) func(real string) bool {
	if level != isolation.Bwrap && level != isolation.Landlock {
		return nil
	}
	var shown []string
	for _, dir := range expose {
		if real, ok := workspace.RealPath(dir); ok {
			shown = append(shown, real)
		}
	}
	return func(real string) bool { return isolation.Visible(real, shown) }
}

// installationOf returns the directory with the files that a program needs: the node_modules directory into which it
// was installed, or the program's directory.
func installationOf(program string) string {
	const packages = "/node_modules/"
	if before, _, found := strings.Cut(program, packages); found {
		return before + strings.TrimSuffix(packages, "/")
	}
	return filepath.Dir(program)
}

// shell returns the path of the shell that OpenCode runs. It is a copy, because the directory of the original may hold
// files that OpenCode must not see.
func (s *Supervisor) shell() string {
	if s.Isolation.Level == isolation.None {
		return s.Shell
	}
	return s.path("bin", filepath.Base(s.Shell))
}

// copyShell replaces the copy at shell().
func (s *Supervisor) copyShell() error {
	if s.shell() == s.Shell {
		return nil
	}
	if err := os.RemoveAll(s.path("bin")); err != nil {
		return err
	}
	if err := os.Mkdir(s.path("bin"), 0o700); err != nil {
		return err
	}
	from, err := os.Open(s.Shell)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(s.shell(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// hasProxy reports whether OpenCode's only network is our proxy.
func (s *Supervisor) hasProxy() bool { return s.Isolation.Level != isolation.None && s.Proxy != nil }

// proxy returns the URL of OpenCode's proxy, and the proxy's address for this process. Both are empty if OpenCode has
// the network of this process.
func (s *Supervisor) proxy() (used *url.URL, address string) {
	if !s.hasProxy() {
		return nil, ""
	}
	at := s.Proxy()
	address = at.Host
	if s.Isolation.Level == isolation.Bwrap {
		own := *at
		own.Host, at = netrelay.ProxyAddress, &own
	}
	return at, address
}

// startConfined starts OpenCode in its isolation. OpenCode listens on port and connects only to the proxy at address
// and to the shell's port.
func (s *Supervisor) startConfined(argv []string, port int, address string, prepare func(*exec.Cmd),
	listens *announcement) (*child, error) {
	c := &child{listens: listens, exited: make(chan struct{})}
	confined := isolation.Command{Argv: argv, Dir: s.path("home"), TCP: true, Bind: []uint16{uint16(port)}}
	_, proxyPort, _ := net.SplitHostPort(address)
	shellPort, _, _ := strings.Cut(strings.TrimPrefix(s.ShellAddress, shellsocket.TCP), "/")
	for _, port := range []string{proxyPort, shellPort} {
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			confined.Connect = append(confined.Connect, uint16(n))
		}
	}
	if s.Isolation.Level == isolation.Bwrap {
		link, linked, err := netrelay.Open()
		if err != nil {
			return nil, err
		}
		defer linked.Close()
		c.link = link
		if confined.Helper, err = os.Executable(); err != nil {
			return nil, err
		}
		confined.Argv, confined.Files = netrelay.Argv(isolation.HelperPath, argv), []*os.File{linked}
	}
	var err error
	if c.prepared, err = s.confinement.Prepare(confined); err != nil {
		c.release()
		return nil, err
	}
	c.cmd = exec.Command(c.prepared.Argv[0], c.prepared.Argv[1:]...)
	c.cmd.ExtraFiles = c.prepared.Files
	if !c.prepared.SetsDir {
		c.cmd.Dir = s.path("home") // not the workspace: Bun reads .env and bunfig.toml in the current directory
	}
	prepare(c.cmd)
	if err := c.start(); err != nil {
		c.release()
		return nil, err
	}
	if c.link != nil && address != "" {
		go func() {
			if err := c.link.Serve(address); err != nil {
				s.Logger.Error("connect opencode with its proxy", "err", err)
			}
		}()
	}
	return c, nil
}

// searchPath is PATH without the directories that OpenCode cannot see.
func (s *Supervisor) searchPath() string {
	if s.confinement == nil {
		return os.Getenv("PATH")
	}
	return s.confinement.FilterPath(os.Getenv("PATH"))
}
