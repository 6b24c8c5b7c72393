package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/datadir"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
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
		"chat c1 --continue":         "--continue takes the newest chat",
		"chats --limit 0":            "--limit must be at least 1, got 0",
		"chats x":                    `unexpected argument "x"`,
		"replay":                     "which chat?",
		"replay evt.>":               `parse id "evt.>"`,
		"replay c --speed fast":      `--speed must be max or a number above 0, got "fast"`,
		"replay c --speed NaN":       `--speed must be max`,
		"replay c --from 5 --to 4":   "--from 5 is after --to 4",
		"replay c --at 5 --from 1":   "--at shows one moment",
		"replay c --from -1":         "invalid value",
		"policy replay":              "which rule?",
		"policy replay bash":         `parse rule "bash": column 1`,
		"policy pause users/x":       "a record is named COLLECTION/ID",
		"why a b":                    `unexpected argument "b"`,
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
			is.True(strings.HasPrefix(stderr, "pocketcoder: ") && strings.Count(stderr, "\n") == 1)
		})
	}
}

func TestHelpHasExamples(t *testing.T) {
	for _, name := range []string{"chat", "chats", "replay", "admin rebuild", "admin nats-context", "policy why",
		"doctor"} {
		is := is.New(t)
		stdout, _, err := runApp(t, append(strings.Fields(name), "-h")...)
		is.True(errors.Is(err, flag.ErrHelp))
		expect.Contains(t, stdout, "pocketcoder "+name)
		expect.Contains(t, stdout, "Exit status:")
		expect.Contains(t, stdout, "POCKETCODER_DATA")
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
			want, _, _ := runApp(t, append(strings.Fields(name), "-h")...)
			got, _, err := runApp(t, append([]string{"help"}, strings.Fields(name)...)...)
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
	is.Equal(stdout, usageText())
}

func TestFormerNamesOfCommandsStillWork(t *testing.T) {
	for former, now := range formerNames {
		is := is.New(t)
		old, _, err := runApp(t, former, "-h")
		is.True(errors.Is(err, flag.ErrHelp))
		got, _, _ := runApp(t, append(slices.Clone(now), "-h")...)
		old, _, _ = strings.Cut(old, "\nFlags:") // whose defaults differ with HOME
		is.True(strings.HasPrefix(got, old) && strings.HasPrefix(old, "pocketcoder "+now[0]))
	}
}

func TestWithoutAHomeTheDataDirectoryMustBeNamed(t *testing.T) {
	is := is.New(t)
	env, output := environment(nil)
	is.Equal(run(t.Context(), env, []string{"chats"}), cli.ErrUsage)
	is.Equal(output.String(), "pocketcoder: chats: HOME is not set; name the data directory with --data or POCKETCODER_DATA\n")
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
	stdout, _, err := runApp(t, "sandbox", "-h")
	is.True(errors.Is(err, flag.ErrHelp))
	expect.Lacks(t, stdout, "Flags:")
	stdout, _, _ = runApp(t, "replay", "-h")
	expect.Lacks(t, stdout, "18446744073709551615")
}

func TestHelpOffersNoFieldThatPocketCoderSets(t *testing.T) {
	stdout, _, _ := runApp(t, "key", "-h")
	expect.Lacks(t, stdout, "-last-used")
}

// A field of a type is missing nowhere.
func TestEachFieldOfATypeHasAFlag(t *testing.T) {
	for _, g := range cli.GroupsOf(recordtype.All(nil), groups...) {
		stdout, _, _ := runApp(t, g.Name, "-h")
		_, flags, _ := strings.Cut(stdout, "\nFlags:")
		for _, f := range slices.Concat(g.Types[0].Fields, g.Types[len(g.Types)-1].Fields) {
			if !f.Settable() || g.Name == "note" || g.Name == "model" { // whose arguments name the fields
				continue
			}
			all := f.Parts
			if len(all) == 0 {
				f.Name = cmp.Or(g.Flags[f.Name], f.Name)
				all = append(all, f)
			}
			for _, one := range all {
				name := "\n  -" + strings.ReplaceAll(one.Name, "_", "-")
				is.New(t).True(strings.Contains(flags, name+" ") || strings.Contains(flags, name+"\n")) // a flag of that name
			}
		}
	}
}

// Every type has a command with the same verbs, as far as it allows them.
func TestEachTypeHasTheSameVerbs(t *testing.T) {
	is := is.New(t)
	for _, g := range cli.GroupsOf(recordtype.All(nil), groups...) {
		_, stderr, err := runApp(t, g.Name, "nonsense", "nonsense")
		if is.Equal(err, cli.ErrUsage); g.Default == "code" { // any word is an argument of pair
			continue
		}
		typ := g.Types[0]
		_, hasSwitch := typ.Switch()
		for verb, want := range map[string]bool{"list": true, "show": true, "set": typ.Update != nil, "enable": hasSwitch,
			"disable": hasSwitch, "delete": typ.Delete != nil} {
			if has := slices.Contains(regexp.MustCompile(`[a-z]+`).FindAllString(stderr, -1), verb); has != want {
				t.Errorf("%s %s: %t, want %t: %s", g.Name, verb, has, want, stderr)
			}
		}
	}
}

// commandNames are the commands of the usage text.
func commandNames(t *testing.T) (names []string) {
	t.Helper()
	for _, line := range regexp.MustCompile(`(?m)^  pocketcoder (\S+)`).FindAllStringSubmatch(usageText(), -1) {
		names = append(names, line[1])
	}
	if len(names) < 25 {
		t.Fatalf("the usage text has %d commands", len(names))
	}
	return names
}

func TestEveryCommandAnswersHelpAndUnknownFlagsAlike(t *testing.T) {
	for _, name := range commandNames(t) {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			stdout, stderr, err := runApp(t, name, "-h")
			is.True(errors.Is(err, flag.ErrHelp))
			is.Equal(stderr, "")
			is.True(strings.HasPrefix(stdout, "pocketcoder "+name))
			stdout, stderr, err = runApp(t, name, "--nonsense")
			is.Equal(err, cli.ErrUsage)
			is.Equal(stdout, "")
			is.True(strings.HasPrefix(stderr, "pocketcoder: ") && strings.Count(stderr, "\n") == 1)
			expect.Contains(t, stderr, "flag provided but not defined: -nonsense; see pocketcoder ")
		})
	}
}

func TestUnknownVerbsAreAnsweredAlike(t *testing.T) {
	for _, name := range []string{"schedule", "user", "agent", "note", "model", "policy", "budget", "device",
		"key", "mcp", "procedure", "sandbox", "admin"} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			_, stderr, err := runApp(t, name, "nonsense")
			is.Equal(err, cli.ErrUsage)
			is.True(strings.HasPrefix(stderr, "pocketcoder: "+name+`: there is no "nonsense"; want `))
			is.Equal(strings.Count(stderr, "\n"), 1)
		})
	}
	is := is.New(t)
	_, stderr, err := runApp(t, "nonsense")
	is.Equal(err, cli.ErrUsage)
	is.Equal(stderr, "pocketcoder: there is no command \"nonsense\"; see pocketcoder -h\n")
}

func TestTheVersionIsAFlagToo(t *testing.T) {
	is := is.New(t)
	want, _, err := runApp(t, "version")
	is.NoErr(err)
	stdout, _, err := runApp(t, "--version")
	is.NoErr(err)
	is.Equal(stdout, want)
}

// environment returns an environment without a terminal and with these variables, and the buffer that stdout and
// stderr go to.
func environment(variables map[string]string) (cli.Environment, *bytes.Buffer) {
	var out bytes.Buffer
	return cli.Environment{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
		Getenv: func(name string) string { return variables[name] }}, &out
}
