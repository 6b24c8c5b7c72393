// Package opencode runs an OpenCode server as a child process, with its own directories, configuration and isolation.
// It restarts the server, kills it at the end and leaves no orphans. It also serves pocketcoder-shell, the shell of the
// server.
//
// Promises:
//   - The workspace cannot configure OpenCode. Supervisor refuses to start an OpenCode whose effective configuration
//     lets any tool run without asking.
//   - One supervisor at a time uses a directory. It ends the OpenCode that an earlier process has left there.
//   - If OpenCode does not start and its database is damaged, Supervisor moves the database aside and starts OpenCode
//     again.
//
// The package must not know the log, chats or decisions: the packages ingest and outbox connect OpenCode with them.
package opencode

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/install"
	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/events/log/sleep"
	"pocketcoder/sandbox/isolation"
)

// Supervisor runs OpenCode as a child of this process, at the level Isolation. OpenCode listens on a free loopback
// port with a random password, stores its files below Dir and reads only our configuration. Supervisor restarts
// OpenCode when OpenCode ends or does not answer. It can be run once.
type Supervisor struct {
	Tools     install.Tools
	Dir       string // absolute; one supervisor at a time
	Workspace string // absolute: where sessions live
	Shell     string // absolute: runs the commands of agents, as Shell -c COMMAND; not named bash, zsh, fish or nu
	// ShellAddress is the address of the ShellServer that answers Shell, such as unix:/data/shell.sock.
	ShellAddress string
	Provider     provider.Provider // until Replace
	Logger       *slog.Logger
	Launcher     []string       // optional: a program that executes the command line that follows its own
	Started      func(Instance) // called when OpenCode is ready, each time; must not block
	Changed      func()         // called when Trouble may have changed, unless nil

	// Isolation is the level at which OpenCode runs. At None it runs with the rights and the network of this process.
	Isolation isolation.Choice
	Expose    []string // absolute; further directories that OpenCode may read

	// Proxy returns the URL of the HTTP proxy with credentials for one start of OpenCode. At every level but None it is
	// OpenCode's only network.
	Proxy func() *url.URL

	// Allow receives host:port of OpenCode's model providers before each call of Started, unless nil.
	Allow func(addresses []string)

	// MCP returns PocketCoder's own MCP server for one start of OpenCode; nil for none.
	MCP func() MCPServer

	// Conceal receives the password of each start, which must not be stored, unless nil. OpenCode can read it in its
	// environment.
	Conceal func(password string)

	// SkillChanged receives the text of a SKILL.md that was changed since it was written, before it is written again,
	// unless nil. After an error the file is kept elsewhere.
	SkillChanged func(name, text string) error

	Limits   HealthLimits  // zero for DefaultHealthLimits
	GitLimit time.Duration // of each git that OpenCode runs, in whole seconds; zero for one minute

	confinement *isolation.Confinement
	aliases     []string  // of Dir
	own         MCPServer // of the last start; empty for none
	trouble     atomic.Pointer[string]
	running     atomic.Pointer[provider.Provider] // what Replace was given
	replacement atomic.Pointer[startConfig]       // of the running OpenCode
	skills      atomic.Pointer[map[string]string]
	endLife     atomic.Pointer[context.CancelCauseFunc]
}

// Instance is one run of OpenCode. A new instance has forgotten the pending requests and questions of the previous
// one. It leaves unfinished turns as they are.
type Instance struct {
	N      int // 1 for the first
	Client *client.Client
	PID    int
	Exited <-chan struct{} // closed when it has ended
}

const (
	maxReadyTime = 15 * time.Minute // of a start; usually 3 s, but minutes on a slow machine
	firstPause   = 500 * time.Millisecond
	maxPause     = 10 * time.Second
	lockPause    = time.Second / 4
	healthyTime  = time.Minute // a run of this length resets the pauses
	// starts, after which the next one that ends before it is ready is an error: another program may have its port
	maxFirstStarts = 3
)

// errEnded says OpenCode ended before it was ready.
var errEnded = errors.New("it ended")

// Run keeps OpenCode running until ctx ends, then kills it within 5 s and returns nil. It returns an error if the
// first start fails or if the configuration is not the required one. After the first successful start it restarts
// OpenCode without a limit, after pauses that grow to 10 s. It first kills an OpenCode that an earlier process of this
// data directory left running.
func (s *Supervisor) Run(ctx context.Context) error {
	if err := s.makeDirs(); err != nil {
		return fmt.Errorf("start opencode: %w", err)
	}
	unlock, err := s.lock(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("start opencode: %w", err)
	}
	defer unlock()
	if err := killLeftOver(s.path("pid")); err != nil {
		return err
	}
	log, err := openLog(s.path("opencode.log"))
	if err != nil {
		return fmt.Errorf("open opencode's log: %w", err)
	}
	defer log.Close()
	if s.confinement, err = s.isolate(); err != nil {
		return fmt.Errorf("start opencode: %w", err)
	}
	defer s.confinement.Close()
	pause, ready := time.Duration(0), 0
	for try := 1; ; try++ {
		began := time.Now()
		up, err := s.live(ctx, log, ready+1)
		if ctx.Err() != nil {
			return nil
		}
		if up {
			ready++
		}
		if errors.Is(err, errRestart) {
			s.Logger.Info("opencode stopped; starting it again", "reason", err)
			continue
		}
		if !up {
			moved, failed := s.moveDamagedDatabase(ctx)
			if moved {
				try--
				continue
			}
			err = errors.Join(err, failed)
		}
		if ready == 0 && (try == maxFirstStarts || !errors.Is(err, errEnded)) {
			return err
		}
		pause = pauseAfter(pause, up && time.Since(began) > healthyTime)
		s.Logger.Error("opencode stopped; starting it again", "err", err, "pause", pause)
		if sleep.For(ctx, pause) != nil {
			return nil
		}
	}
}

// pauseAfter returns the pause after the end of a life, given the pause before that life.
func pauseAfter(before time.Duration, wasHealthy bool) time.Duration {
	if wasHealthy {
		return firstPause
	}
	return min(max(2*before, firstPause), maxPause)
}

// lock takes the lock of the directory. Another node that hangs may hold it for a while longer, or the server of a
// shared directory may hold it for a machine that died.
func (s *Supervisor) lock(ctx context.Context) (unlock func(), err error) {
	return install.AwaitLock(ctx, s.path("lock"), lockPause, func(err error) {
		s.Logger.Warn("OpenCode starts once the other process releases its directory", "err", err)
	})
}

// live runs OpenCode once, from start to end. up reports whether it was ever ready.
func (s *Supervisor) live(ctx context.Context, log *logFile, n int) (up bool, err error) {
	c, api, err := s.start(log)
	if err != nil {
		return false, fmt.Errorf("start opencode: %w", err)
	}
	defer os.Remove(s.path("pid"))
	defer c.stop()
	ready, cancel := s.limitStart(ctx, c.cmd.Process.Pid)
	defer cancel()
	if err := s.awaitReady(ready, c, api); err != nil {
		return false, fmt.Errorf("start opencode: %w; its last lines:\n%s", err, log.last())
	}
	models, err := s.verify(ready, api)
	if err != nil {
		return false, fmt.Errorf("start opencode: %w", err)
	}
	cancel()
	if s.Allow != nil {
		s.Allow(models.Addresses)
	}
	s.Logger.Info("opencode is ready", "url", api.URL(), "pid", c.cmd.Process.Pid)
	s.Started(Instance{n, api, c.cmd.Process.Pid, c.exited})
	life, end := s.lifeOf(ctx)
	defer end()
	watched, stop := context.WithCancel(life)
	defer stop()
	silent := make(chan error, 1)
	go func() { silent <- s.watch(watched, api, c.cmd.Process.Pid) }()
	select {
	case <-c.exited:
		err = fmt.Errorf("opencode exited unexpectedly: %v; its last lines:\n%s", c.err, log.last())
	case err = <-silent:
		if cause := context.Cause(life); ctx.Err() == nil && cause != nil {
			err = cause
		}
		return true, err
	}
	stop()
	<-silent
	return true, err
}

// limitStart returns a context for the wait until OpenCode is ready. It ends if OpenCode is stuck: OpenCode uses less
// than a hundredth of a processor for HealthLimits.Start. A slow start that makes progress is reported instead.
func (s *Supervisor) limitStart(ctx context.Context, pid int) (starting context.Context, cancel func()) {
	starting, end := context.WithCancelCause(ctx)
	limit := cmp.Or(s.Limits.Start, DefaultHealthLimits.Start)
	step := limit / 3
	go func() {
		idle, used := time.Duration(0), processorTime(pid)
		for waited := step; sleep.For(starting, step) == nil; waited += step {
			before := used
			if used = processorTime(pid); used-before >= step/100 {
				idle = 0
			} else if idle += step; idle >= limit {
				end(fmt.Errorf("not ready within %s, and idle for %s", waited, idle))
			}
			if waited >= maxReadyTime {
				end(fmt.Errorf("not ready within %s", waited))
			}
			if starting.Err() == nil {
				s.Logger.Warn("OpenCode is still starting", "waited", waited)
			}
		}
	}()
	return starting, func() { end(nil) }
}

// start writes the files that OpenCode reads, and starts it.
func (s *Supervisor) start(log *logFile) (*child, *client.Client, error) {
	if s.MCP != nil {
		s.own = s.MCP()
	}
	if err := s.noticeSkills(); err != nil {
		return nil, nil, err
	}
	if err := s.prepare(); err != nil {
		return nil, nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	password := rand.Text()
	if s.Conceal != nil {
		s.Conceal(password)
	}
	given := s.next()
	s.replacement.Store(&given)
	if err := s.writeSkills(given.skills); err != nil {
		return nil, nil, err
	}
	proxy, address := s.proxy()
	env, err := s.environment(password, proxy)
	if err != nil {
		return nil, nil, err
	}
	argv := append(slices.Clone(s.Launcher), s.Tools.OpenCode, "serve", "--hostname", "127.0.0.1", "--port",
		strconv.Itoa(port),
		"--print-logs", "--log-level", "WARN")
	api := client.New("http://127.0.0.1:"+strconv.Itoa(port), password)
	listens := &announcement{url: api.URL(), made: make(chan struct{})}
	c, err := s.startConfined(argv, port, address, func(cmd *exec.Cmd) {
		cmd.Env, cmd.Stdout, cmd.Stderr = env, io.MultiWriter(log, listens), log
	}, listens)
	if err != nil {
		return nil, nil, err
	}
	if c.link != nil {
		api.DialThrough(c.link.Dial)
	}
	if err := writePID(s.path("pid"), c.cmd.Process.Pid); err != nil {
		c.stop()
		return nil, nil, err
	}
	return c, api, nil
}

// readyRequestTimeout is the timeout of one request whether OpenCode is ready. A request that arrives just as OpenCode
// opens its port may never be answered (behaviour early-request-unanswered); the next one is.
const readyRequestTimeout = time.Second

func (s *Supervisor) awaitReady(ctx context.Context, c *child, api *client.Client) error {
	select {
	case <-c.listens.made:
	case <-c.exited:
		return fmt.Errorf("%w: %v", errEnded, c.err)
	case <-ctx.Done():
		return fmt.Errorf("it does not report that it listens: %w", context.Cause(ctx))
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		try, cancel := context.WithTimeoutCause(ctx, readyRequestTimeout,
			fmt.Errorf("no answer within %s", readyRequestTimeout))
		version, err := api.Health(try)
		cancel()
		if err == nil {
			return s.checkVersion(version)
		}
		if !client.Retryable(err) && ctx.Err() == nil {
			return err
		}
		select {
		case <-tick.C:
		case <-c.exited:
			return fmt.Errorf("%w: %v", errEnded, c.err)
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// checkVersion refuses another version than Tools says. If Tools says none, version becomes that of Tools.
func (s *Supervisor) checkVersion(version string) error {
	if s.Tools.Version == "" {
		s.Tools.Version = version
		if version != install.OpenCodeVersion {
			s.Logger.Warn(fmt.Sprintf("%s is version %s; only %s is known to work", s.Tools.OpenCode, version,
				install.OpenCodeVersion))
		}
	}
	if version != s.Tools.Version {
		return fmt.Errorf("it is version %s, not %s", version, s.Tools.Version)
	}
	return nil
}

// freePort returns a loopback port without a listener. OpenCode's --port 0 means its default port
// (behaviour port-zero).
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
