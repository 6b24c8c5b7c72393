package main

import (
	"bytes"
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/cli/clitest"
	"pocketcoder/cmd/datadir"
	"pocketcoder/expect"
)

// runApp runs the program in this process, with an empty data directory unless the arguments name another.
func runApp(t testing.TB, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	home := t.TempDir()
	env := cli.Environment{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(name string) string {
		return map[string]string{"HOME": home}[name]
	}}
	err = run(t.Context(), env, args)
	return out.String(), errs.String(), err
}

func TestWrongArgumentsAreReported(t *testing.T) {
	for args, want := range map[string]string{
		"chat --nonsense":            "flag provided but not defined: -nonsense",
		"chat a b":                   `unexpected argument "b"`,
		"chat a.*":                   `parse id "a.*"`,
		"chat -m=":                   "the message is empty",
		"chat --approve maybe":       `--approve must be ask, all or none, got "maybe"`,
		"chat c1 --title x":          "--title is for a new chat",
		"chats --limit 0":            "--limit must be at least 1, got 0",
		"chats x":                    `unexpected argument "x"`,
		"replay":                     "which chat?",
		"replay evt.>":               `parse id "evt.>"`,
		"replay c --speed fast":      `--speed must be max or a number above 0, got "fast"`,
		"replay c --speed NaN":       `--speed must be max`,
		"replay c --from 5 --to 4":   "--from 5 is after --to 4",
		"replay c --at 5 --from 1":   "--at shows one moment",
		"replay c --from -1":         "invalid value",
		"rebuild x":                  `unexpected argument "x"`,
		"nats-context --name ../../": "--name: parse id",
		"version x":                  `unexpected argument "x"`,
		"doctor x":                   `unexpected argument "x"`,
	} {
		t.Run(args, func(t *testing.T) {
			is := is.New(t)
			_, stderr, err := runApp(t, strings.Fields(args)...)
			is.True(errors.Is(err, cli.ErrUsage))
			expect.Contains(t, stderr, want) // stderr names what was wrong
		})
	}
}

func TestHelpHasExamples(t *testing.T) {
	for _, name := range []string{"chat", "chats", "replay", "admin rebuild", "admin nats-context", "policy why",
		"doctor"} {
		is := is.New(t)
		_, stderr, err := runApp(t, append(strings.Fields(name), "-h")...)
		is.True(errors.Is(err, flag.ErrHelp))
		expect.Contains(t, stderr, "pocketcoder "+name)
		expect.Contains(t, stderr, "Exit status:")
		expect.Contains(t, stderr, "POCKETCODER_DATA")
	}
}

func TestHelpOfACommand(t *testing.T) {
	for _, name := range []string{
		"up", "chat", "chats", "user", "user add", "policy", "policy test", "policy why", "budget", "replay",
		"replay --follow", "attach", "admin",
		"admin rebuild", "admin nats-context", "admin nats-config", "worker", "sandbox", "sandbox ps", "sandbox shell",
		"doctor", "version",
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			_, want, _ := runApp(t, append(strings.Fields(name), "-h")...)
			_, got, err := runApp(t, append([]string{"help"}, strings.Fields(name)...)...)
			is.True(errors.Is(err, flag.ErrHelp))
			got, _, _ = strings.Cut(got, "\nFlags:") // whose defaults differ with HOME
			got, _, _ = strings.Cut(got, "\nBasics:")
			expect.Contains(t, got, "pocketcoder "+name)
			is.True(strings.HasPrefix(want, got))
		})
	}
	is := is.New(t)
	_, stderr, err := runApp(t, "help", "nonsense")
	is.Equal(err, cli.ErrUsage)
	expect.Contains(t, stderr, `there is no command "nonsense"`)
	stdout, _, err := runApp(t, "help", "help")
	is.NoErr(err)
	is.Equal(stdout, usage)
}

func TestFormerNamesOfCommandsStillWork(t *testing.T) {
	for former, now := range formerNames {
		is := is.New(t)
		_, old, err := runApp(t, former, "-h")
		is.True(errors.Is(err, flag.ErrHelp))
		_, got, _ := runApp(t, append(slices.Clone(now), "-h")...)
		old, _, _ = strings.Cut(old, "\nFlags:") // whose defaults differ with HOME
		is.True(strings.HasPrefix(got, old) && strings.HasPrefix(old, "pocketcoder "+now[0]))
	}
}

func TestWithoutAHomeTheDataDirectoryMustBeNamed(t *testing.T) {
	is := is.New(t)
	env, output := clitest.Environment(nil)
	is.Equal(run(t.Context(), env, []string{"chats"}), cli.ErrUsage)
	is.Equal(output.String(), "chats: HOME is not set; name the data directory with --data or POCKETCODER_DATA\n")
}

func TestMissingSystemIsReported(t *testing.T) {
	for _, args := range []string{"chat -m hello", "chats", "replay c1", "replay c1 --follow", "admin rebuild",
		"admin nats-context"} {
		is := is.New(t)
		_, _, err := runApp(t, strings.Fields(args)...)
		is.True(errors.Is(err, datadir.ErrNotRunning))
	}
}

func TestHelpWithoutFlagsHasNoListOfThem(t *testing.T) {
	is := is.New(t)
	_, stderr, err := runApp(t, "policy", "-h")
	is.True(errors.Is(err, flag.ErrHelp))
	expect.Lacks(t, stderr, "Flags:")
	_, stderr, _ = runApp(t, "replay", "-h")
	expect.Lacks(t, stderr, "18446744073709551615")
}
