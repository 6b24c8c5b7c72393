// Package clitest helps the tests of commands.
package clitest

import (
	"bytes"
	"strings"

	"pocketcoder/cmd/cli"
)

// Environment returns an environment without a terminal and with these variables, and the buffer that stdout and
// stderr go to.
func Environment(variables map[string]string) (cli.Environment, *bytes.Buffer) {
	var out bytes.Buffer
	return cli.Environment{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
		Getenv: func(name string) string { return variables[name] }}, &out
}
