package admin

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"

	"pocketcoder/cmd/cli"
)

// maxPasswordLine limits the line that is read as a password, in bytes. The handler refuses passwords that are too
// long.
const maxPasswordLine = 64 << 10

// password returns a new password: a generated one, one typed twice at the terminal, or one line of stdin.
func (u *userCommand) password(ctx context.Context) (string, error) {
	if u.generate {
		return rand.Text(), nil
	}
	if f, ok := u.env.Stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return readTwice(ctx, f, u.env.Stderr)
	}
	line, err := bufio.NewReader(io.LimitReader(u.env.Stdin, maxPasswordLine)).ReadString('\n')
	if err != nil && err != io.EOF {
		return "", fmt.Errorf("read the password: %w", err)
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", errors.New("read the password: stdin has no line; --generate creates a password")
	}
	return line, nil
}

// printGenerated prints the generated password, unless the command has failed.
func (u *userCommand) printGenerated(password string, err error) error {
	if err == nil && u.generate {
		_, err = fmt.Fprintln(u.env.Stdout, password)
	}
	return err
}

func readTwice(ctx context.Context, terminal *os.File, prompt io.Writer) (string, error) {
	first, err := readHidden(ctx, terminal, prompt, "New password: ")
	if err != nil {
		return "", err
	}
	second, err := readHidden(ctx, terminal, prompt, "Repeat the new password: ")
	if err == nil && first != second {
		err = errors.New("the two passwords differ")
	}
	return first, err
}

// readHidden reads a line without echo. Ctrl-C ends it and restores the terminal.
func readHidden(ctx context.Context, terminal *os.File, prompt io.Writer, text string) (string, error) {
	fd := int(terminal.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT)
	defer signal.Stop(interrupted)
	type read struct {
		line []byte
		err  error
	}
	done := make(chan read, 1)
	fmt.Fprint(prompt, text)
	go func() {
		line, err := term.ReadPassword(fd)
		done <- read{line, err}
	}()
	select {
	case r := <-done:
		fmt.Fprintln(prompt)
		if r.err != nil {
			return "", fmt.Errorf("read the password: %w", r.err)
		}
		return string(r.line), nil
	case <-interrupted:
		err = cli.ExitCode(128 + int(syscall.SIGINT))
	case <-ctx.Done():
		err = ctx.Err()
	}
	fmt.Fprintln(prompt)
	return "", errors.Join(err, term.Restore(fd, before))
}
