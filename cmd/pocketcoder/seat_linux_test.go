package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"

	"pocketcoder/cmd/cmdtest"
	"pocketcoder/ops/expect"
)

// terminalSession is a person at a terminal in which a program runs.
type terminalSession struct {
	t      *testing.T
	person *os.File
	seen   expect.Buffer // everything the terminal was given, byte for byte
	exited chan struct{}
	cmd    *exec.Cmd
}

// startTerminal runs a program in a terminal of 120 by 40 characters.
func startTerminal(t *testing.T, cmd *exec.Cmd) *terminalSession {
	t.Helper()
	is := is.New(t)
	terminal, person := cmdtest.Terminal(t)
	is.NoErr(unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}))
	s := &terminalSession{t: t, person: person, exited: make(chan struct{}), cmd: cmd}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	is.NoErr(cmd.Start())
	go func() {
		piece := make([]byte, 4096)
		for {
			n, err := person.Read(piece)
			if err != nil {
				return
			}
			s.seen.Write(piece[:n])
		}
	}()
	go func() { cmd.Wait(); close(s.exited) }()
	t.Cleanup(func() { cmd.Process.Kill(); <-s.exited })
	return s
}

// attach runs "pocketcoder attach" in a terminal.
func (p *process) attach(t *testing.T, args ...string) *terminalSession {
	t.Helper()
	cmd := exec.Command(pocketcoder(t), append([]string{"attach", "--data", string(p.data)}, args...)...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "TMUX=/nowhere,1,0")
	return startTerminal(t, cmd)
}

func (s *terminalSession) typeText(text string) {
	s.t.Helper()
	if _, err := s.person.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// pressAfterPrefix types C-b and, once tmux has taken that, what follows: keys that come within a millisecond are
// pasted text to tmux (assume-paste-time), and do nothing.
func (s *terminalSession) pressAfterPrefix(v tmux, chat, keys string) {
	s.t.Helper()
	defer s.logOnFailure()
	waiting := func() bool { // for what follows C-b
		clients, err := v.output(s.t.Context(), "list-clients", "-t", "="+chat, "-F", "#{client_prefix}")
		is.New(s.t).NoErr(err)
		return strings.Contains(clients, "1")
	}
	expect.Eventually(s.t, "tmux has done what the last keys say", func() bool { return !waiting() })
	s.typeText("\x02")
	typed := time.Now()
	expect.Eventually(s.t, "tmux has taken C-b", func() bool {
		if waiting() {
			return true
		}
		if time.Since(typed) > 2*time.Second { // the end of a double click makes tmux forget it
			s.typeText("\x02")
			typed = time.Now()
		}
		return false
	})
	s.typeText(keys)
}

// awaitText waits until the terminal was given a text.
func (s *terminalSession) awaitText(text string) {
	s.t.Helper()
	defer s.logOnFailure()
	expect.Eventually(s.t, "the person sees "+text, func() bool { return strings.Contains(s.seen.String(), text) })
}

// logOnFailure shows in a test that failed what the terminal was given.
func (s *terminalSession) logOnFailure() {
	if s.t.Failed() {
		s.t.Logf("the terminal was given %q", s.seen.String())
	}
}

// awaitExit waits until the program has ended.
func (s *terminalSession) awaitExit() {
	s.t.Helper()
	defer s.logOnFailure()
	expect.Eventually(s.t, "the program has ended", func() bool {
		select {
		case <-s.exited:
			return true
		default:
			return false
		}
	})
}
