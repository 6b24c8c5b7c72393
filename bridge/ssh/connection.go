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
)

// How many connections are taken at once. Those that do not log in are over after LoginGraceTime, and so that they
// shut nobody out they have places of their own, of which an address has a few.
const (
	maxConnections = 64 // of people who have logged in
	maxOfAccount   = 16 // of these of one account
	maxWaiting     = 32 // of those who have not yet
	maxWaitingFrom = 8  // of these from one address
)

// connectionStop is how long the sshd of a connection may take to end.
const connectionStop = 2 * time.Second

// Run takes connections until ctx ends, and cuts those that are open then.
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
		if err != nil { // such as no file left to open: it may be over soon
			s.logger.Error("accept ssh connection", "err", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
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

// Keep is told of the lines of authorized_keys, by fingerprint. It cuts every connection whose key has no line any
// more, or not the one it came in with, which says what it gives.
func (s *Server) Keep(lines map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.kept == nil
	s.kept = lines
	for c := range s.open {
		if first { // there was no file before: these lines are the first that its sshd may find
			c.lines = lines
		}
		s.cutUnlessKept(c)
	}
}

// cutUnlessKept cuts a connection whose key is known and whose line is not as it was. The caller holds s.mu.
func (s *Server) cutUnlessKept(c *connection) {
	if line := s.kept[c.key]; c.key != "" && s.kept != nil && (line == "" || line != c.lines[c.key]) {
		s.logger.Warn("ssh connection cut: its key is no longer taken, or gives something else", "from", c.from, "key", c.key)
		c.cut()
	}
}

// cutBeyondShare cuts a connection of an account that has its share already. The caller holds s.mu.
func (s *Server) cutBeyondShare(c *connection) {
	others := 0
	for other := range s.open {
		if other != c && other.key != "" && other.account() == c.account() {
			others++
		}
	}
	if others >= maxOfAccount {
		s.logger.Warn("ssh connection cut: its account has as many as one may have", "from", c.from, "key", c.key, "most",
			maxOfAccount)
		c.cut()
	}
}

// account is whose key let the connection in: the comment of the key's line.
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
	if in >= maxConnections || waiting >= maxWaiting || waitingFrom >= maxWaitingFrom {
		return false
	}
	c.lines = s.kept
	s.open[c] = true
	return true
}

// host is an address without its port.
func host(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

func (s *Server) forget(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// connection is one, and what its sshd says on stderr.
type connection struct {
	server *Server
	from   string
	cut    context.CancelFunc

	key string // fingerprint of the key that let it in; guarded by the server's mu, like cut
	// the server's when it came, before sshd looked: a line that has changed since may be the one it found
	lines map[string]string
	said  []byte // the beginning of a line
}

// run is the life of a connection. All its processes but the viewer's are one group; that has a terminal, which is
// hung up.
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
	_ = cmd.Wait() // its status says how the person left
	return nil
}

// accepted is how sshd says that it let somebody in, since OpenSSH 6.8.
var accepted = regexp.MustCompile(`^Accepted publickey for .* (SHA256:\S+)`)

// noteworthy is what an operator should know of what sshd says: who came, and why somebody with a good key could not.
var noteworthy = regexp.MustCompile(`^Accepted |refused|failed|^(error|fatal): `)

// Write takes what sshd says, and passes it on to our log line by line.
func (c *connection) Write(piece []byte) (int, error) {
	c.said = append(c.said, piece...)
	for {
		line, rest, whole := bytes.Cut(c.said, []byte("\n"))
		if !whole {
			return len(piece), nil
		}
		c.said = rest
		text := string(bytes.TrimRight(line, "\r"))
		if key := accepted.FindStringSubmatch(text); key != nil {
			c.server.mu.Lock()
			c.key = key[1]
			c.server.cutUnlessKept(c) // it may have been taken back since sshd looked
			c.server.cutBeyondShare(c)
			c.server.mu.Unlock()
		}
		level := slog.LevelInfo
		if noteworthy.MatchString(text) {
			level = slog.LevelWarn
		}
		c.server.logger.Log(context.Background(), level, "sshd", "from", c.from, "said", text)
	}
}
