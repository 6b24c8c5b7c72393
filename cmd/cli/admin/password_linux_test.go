package admin

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/cmdtest"
	"pocketcoder/ops/expect"
)

func TestPasswordIsReadTwiceWithoutEcho(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ first, second, want string }{
		{"correct horse", "correct horse", ""},
		{"correct horse", "correct house", "the two passwords differ"},
	} {
		is := is.New(t)
		terminal, person := cmdtest.Terminal(t)
		var prompts expect.Buffer
		type result struct {
			password string
			err      error
		}
		done := make(chan result, 1)
		go func() {
			u := userCommand{env: cli.Environment{Stdin: terminal, Stderr: &prompts, Stdout: &bytes.Buffer{}}}
			password, err := u.password(t.Context())
			done <- result{password, err}
		}()
		for i, typed := range []string{c.first, c.second} {
			expect.Eventually(t, "it asks and the terminal is silent", func() bool {
				return strings.Count(prompts.String(), ": ") == i+1 && !cmdtest.Echoes(t, terminal)
			})
			fmt.Fprintln(person, typed)
		}
		r := <-done
		if c.want != "" {
			is.True(r.err != nil && strings.Contains(r.err.Error(), c.want))
		} else {
			is.NoErr(r.err)
			is.Equal(r.password, c.first)
		}
		is.True(cmdtest.Echoes(t, terminal)) // as it was
		expect.Lacks(t, prompts.String(), c.first)
	}
}
