package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/sandbox/limit"
)

func TestAVariableApprovesNothingThatAPersonIsThereToDecide(t *testing.T) {
	for name, c := range map[string]struct {
		interactive bool
		args        []string
		want        string
	}{
		"a person":          {true, nil, approveAsk},
		"a person, by flag": {true, []string{"--approve", "all"}, approveAll},
		"one message":       {true, []string{"-m", "hello"}, approveAll},
		"a script":          {false, nil, approveAll},
		"a script, by flag": {false, []string{"--approve", "none"}, approveNone},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			variables := map[string]string{"POCKETCODER_APPROVE": "all", "POCKETCODER_DATA": t.TempDir()}
			env := environment{stderr: io.Discard, getenv: func(name string) string { return variables[name] }, interactive: c.interactive}
			o, _, err := chatFlags(env, c.args)
			is.NoErr(err)
			is.Equal(o.approve, c.want)
		})
	}
}

func TestTheHelpOfUpShowsTheBasicsFirst(t *testing.T) {
	is := is.New(t)
	help := func(args ...string) (text string, err error) {
		var said strings.Builder
		err = runUp(t.Context(), environment{stderr: &said, getenv: func(string) string { return "" }}, args)
		return said.String(), err
	}
	basics, err := help("-h")
	is.True(errors.Is(err, flag.ErrHelp))
	is.True(strings.Contains(basics, "-workspace directory") && strings.Contains(basics, "pocketcoder up -h all"))
	expect.Lacks(t, basics, "-push-relay")
	all, err := help("-h", "all")
	is.True(errors.Is(err, flag.ErrHelp))
	for _, g := range upGroups {
		expect.Contains(t, all, "\n"+g.name+":\n")
		for _, name := range g.flags {
			is.True(strings.Contains(all, "\n  -"+name+" ") || strings.Contains(all, "\n  -"+name+"\n")) // a flag of that name
		}
	}
	expect.Contains(t, all, "-push-relay")
}

func TestColoursAreForTerminalsThatWantThem(t *testing.T) {
	is := is.New(t)
	show := func(interactive bool, noColor string) string {
		var out bytes.Buffer
		env := environment{stdout: &out, interactive: interactive, getenv: func(string) string { return noColor }}
		rendererOf(env).note("", red, "x")
		return out.String()
	}
	is.Equal(show(true, ""), "\x1b[31mx\x1b[0m\n")
	is.Equal(show(true, "1"), "x\n")
	is.Equal(show(false, ""), "x\n")
}

func TestLimitsComeFromFlagsBeforeTheEnvironment(t *testing.T) {
	is := is.New(t)
	variables := map[string]string{"POCKETCODER_MEMORY": "1GiB", "POCKETCODER_OPEN_FILES": "99", "POCKETCODER_TIMEOUT": "5m"}
	env := environment{stderr: io.Discard, getenv: func(name string) string { return variables[name] }}
	fs := newFlags(env, "worker", "")
	l, err := limitFlags(fs, env)
	is.NoErr(err)
	_, err = parse(fs, []string{"--memory=512MiB", "--file-size", "1.5GB", "--cpu-time=90s", "--processes=0"}, 0)
	is.NoErr(err)
	want := commandLimits{limit.Limits{Memory: 512 << 20, FileSize: 1_500_000_000, CPUTime: 90 * time.Second, OpenFiles: 99}, 5 * time.Minute}
	is.Equal(*l, want)

	fs = newFlags(env, "worker", "")
	again, err := limitFlags(fs, environment{getenv: func(string) string { return "" }})
	is.NoErr(err)
	is.Equal(*again, *defaultLimits())
	_, err = parse(fs, l.args(), 0)
	is.NoErr(err)
	is.Equal(*again, want) // the worker has what up was given
}

func TestBadLimitsAreNamed(t *testing.T) {
	is := is.New(t)
	env := environment{stderr: io.Discard, getenv: func(name string) string {
		return map[string]string{"POCKETCODER_MEMORY": "plenty"}[name]
	}}
	_, err := limitFlags(newFlags(env, "up", ""), env)
	is.True(err != nil)
	is.Equal(err.Error(), `POCKETCODER_MEMORY: size "plenty" is not a number with a unit, such as 512MiB or 4GiB`)

	var said strings.Builder
	env = environment{stderr: &said, getenv: func(string) string { return "" }}
	_, err = upFlags(env, []string{"--memory", "12parsecs"})
	is.Equal(err, errUsage)
	expect.Contains(t, said.String(), `invalid value "12parsecs" for flag -memory: size "12parsecs" is not a number`)
}
