package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"

	"pocketcoder/expect"
)

// openTerminal gives a terminal and the side a person sits at.
func openTerminal(t *testing.T) (terminal, person *os.File) {
	t.Helper()
	is := is.New(t)
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	is.NoErr(err)
	t.Cleanup(func() { person.Close() })
	is.NoErr(unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	is.NoErr(err)
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	is.NoErr(err)
	t.Cleanup(func() { terminal.Close() })
	return terminal, person
}

func echoes(t *testing.T, terminal *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	is.New(t).NoErr(err)
	return state.Lflag&unix.ECHO != 0
}

func TestPasswordIsTypedTwiceUnseen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ first, second, says string }{
		{"correct horse", "correct horse", ""},
		{"correct horse", "correct house", "the two passwords differ"},
	} {
		is := is.New(t)
		terminal, person := openTerminal(t)
		var prompts lockedBuffer
		type result struct {
			password string
			err      error
		}
		done := make(chan result, 1)
		go func() {
			u := userCommand{env: environment{stdin: terminal, stderr: &prompts, stdout: &bytes.Buffer{}}}
			password, err := u.password(t.Context())
			done <- result{password, err}
		}()
		for i, typed := range []string{c.first, c.second} {
			expect.Eventually(t, "it asks and the terminal is silent", func() bool {
				return strings.Count(prompts.String(), ": ") == i+1 && !echoes(t, terminal)
			})
			fmt.Fprintln(person, typed)
		}
		r := <-done
		if c.says != "" {
			is.True(r.err != nil && strings.Contains(r.err.Error(), c.says))
		} else {
			is.NoErr(r.err)
			is.Equal(r.password, c.first)
		}
		is.True(echoes(t, terminal)) // as it was
		expect.Lacks(t, prompts.String(), c.first)
	}
}
