package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"pocketcoder/events/log/sleep"
)

// Limits of concurrent connections. Connections before the login have limits of their own, also for each address. So
// they do not keep accounts from logging in. They end after LoginGraceTime.
const (
	maxConnections       = 64 // logged in
	maxPerAccount        = 16 // logged in, of one account
	maxWaiting           = 32 // before the login
	maxWaitingPerAddress = 8  // before the login, from one address
)

// connectionStop is how long the sshd of a connection may take to end.
const connectionStop = 2 * time.Second

// Run accepts connections until ctx ends, and then closes the open ones.
func (s *Server) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.Close)()
	var busy sync.WaitGroup
	defer busy.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		conn, err := s.listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return ctx.Err()
		}
		if err != nil { // for example a lack of descriptors, which may be temporary
			s.logger.Error("accept ssh connection", "err", err)
			_ = sleep.For(ctx, time.Second)
			continue
		}
		c := &connection{server: s, from: conn.RemoteAddr().String()}
		if !s.admit(c) {
			s.logger.Warn("ssh connection refused: too many are open", "from", c.from)
			conn.Close()
			continue
		}
		busy.Go(func() {
			defer s.forget(c)
			if err := c.run(ctx, conn); err != nil {
				s.logger.Error("ssh connection", "from", c.from, "err", err)
			}
		})
	}
}

// Keep receives the lines of authorized_keys, by fingerprint. It closes every connection whose key has no line any
// more, or another one, because the line defines what the key opens.
func (s *Server) Keep(lines map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.lines == nil
	s.lines = lines
	for c := range s.open {
		if first { // the file did not exist before
			c.lines = lines
		}
		s.cutIfChanged(c)
	}
}

// cutIfChanged closes a connection whose key's line has changed. s.mu must be held.
func (s *Server) cutIfChanged(c *connection) {
	if line := s.lines[c.key]; c.key != "" && s.lines != nil && (line == "" || line != c.lines[c.key]) {
		s.logger.Warn("ssh connection cut: its key is no longer taken, or gives something else", "from", c.from, "key", c.key)
		c.cut()
	}
}

// cutAboveLimit closes a connection of an account that has maxPerAccount others. s.mu must be held.
func (s *Server) cutAboveLimit(c *connection) {
	others := 0
	for other := range s.open {
		if other != c && other.key != "" && other.account() == c.account() {
			others++
		}
	}
	if others >= maxPerAccount {
		s.logger.Warn("ssh connection cut: its account has as many as one may have", "from", c.from, "key", c.key, "most",
			maxPerAccount)
		c.cut()
	}
}

// account returns the account of the connection's key: the comment of the key's line.
func (c *connection) account() string {
	fields := strings.Fields(c.lines[c.key])
	if len(fields) == 0 {
		return c.key
	}
	return fields[len(fields)-1]
}

func (s *Server) admit(c *connection) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	in, waiting, waitingFrom := 0, 0, 0
	for other := range s.open {
		if other.key != "" {
			in++
			continue
		}
		waiting++
		if host(other.from) == host(c.from) {
			waitingFrom++
		}
	}
	if in >= maxConnections || waiting >= maxWaiting || waitingFrom >= maxWaitingPerAddress {
		return false
	}
	c.lines = s.lines
	s.open[c] = true
	return true
}

// host returns an address without its port.
func host(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

func (s *Server) forget(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

type connection struct {
	server *Server
	from   string
	cut    context.CancelFunc

	key string // fingerprint of its key; guarded by the server's mu, like cut
	// the server's when it came, before sshd looked: a line that has changed since may be the one it found
	lines   map[string]string
	partial []byte // the incomplete last line of stderr
}

// run runs the connection to its end. All its processes except the viewer are in one process group. The viewer has a
// terminal, which is hung up.
func (c *connection) run(ctx context.Context, conn *net.TCPConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	file, err := conn.File()
	conn.Close()
	if err != nil {
		return err
	}
	defer file.Close()
	cmd := exec.CommandContext(ctx, c.server.sshd, "-i", "-e", "-f", c.server.config)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = file, file, c
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = connectionStop
	c.server.mu.Lock()
	c.cut = cancel
	c.server.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start sshd: %w", err)
	}
	_ = cmd.Wait() // the status only says how the person left
	return nil
}

// acceptedLine matches sshd's message about a login, since OpenSSH 6.8.
var acceptedLine = regexp.MustCompile(`^Accepted publickey for .* (SHA256:\S+)`)

// noteworthy matches the messages of sshd for the operator: logins, and why a valid key was refused.
var noteworthy = regexp.MustCompile(`^Accepted |refused|failed|^(error|fatal): `)

// Write forwards sshd's messages to the log, line by line.
func (c *connection) Write(piece []byte) (int, error) {
	c.partial = append(c.partial, piece...)
	for {
		line, rest, whole := bytes.Cut(c.partial, []byte("\n"))
		if !whole {
			return len(piece), nil
		}
		c.partial = rest
		text := string(bytes.TrimRight(line, "\r"))
		if key := acceptedLine.FindStringSubmatch(text); key != nil {
			c.server.mu.Lock()
			c.key = key[1]
			c.server.cutIfChanged(c) // the key may have been revoked since sshd checked it
			c.server.cutAboveLimit(c)
			c.server.mu.Unlock()
		}
		level := slog.LevelInfo
		if noteworthy.MatchString(text) {
			level = slog.LevelWarn
		}
		c.server.logger.Log(context.Background(), level, "sshd", "from", c.from, "said", text)
	}
}
