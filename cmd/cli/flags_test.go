package cli

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/cmd/app"
	"pocketcoder/cmd/console"
	"pocketcoder/cmd/console/render"
	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/limit"
)

func TestAVariableApprovesNothingThatAPersonIsThereToDecide(t *testing.T) {
	for name, c := range map[string]struct {
		interactive bool
		args        []string
		want        string
	}{
		"a person":          {true, nil, console.ApproveAsk},
		"a person, by flag": {true, []string{"--approve", "all"}, console.ApproveAll},
		"one message":       {true, []string{"-m", "hello"}, console.ApproveAll},
		"a script":          {false, nil, console.ApproveAll},
		"a script, by flag": {false, []string{"--approve", "none"}, console.ApproveNone},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			variables := map[string]string{"POCKETCODER_APPROVE": "all", "POCKETCODER_DATA": t.TempDir()}
			env := Environment{Stderr: io.Discard, Getenv: func(name string) string { return variables[name] },
				Interactive: c.interactive}
			o, _, err := chatFlags(env, c.args)
			is.NoErr(err)
			is.Equal(o.Approve, c.want)
		})
	}
}

func TestPrivateAddressesAreReachedOnlyWithTheFlag(t *testing.T) {
	is := is.New(t)
	workspace := t.TempDir()
	allows := func(variable string, args ...string) bool {
		t.Helper()
		variables := map[string]string{"POCKETCODER_DATA": t.TempDir(), "POCKETCODER_WORKSPACE": workspace,
			"POCKETCODER_PUSH_ALLOW_PRIVATE": variable}
		env := Environment{Stderr: io.Discard, Getenv: func(name string) string { return variables[name] }}
		var o app.Options
		is.NoErr(systemFlags(&o, env, NewFlags(env, "up", upUsage), upUsage, upGroups, args))
		return o.PushPrivate
	}
	is.True(!allows(""))
	is.True(allows("1"))
	is.True(allows("", "--push-allow-private"))
}

func TestTheHelpOfUpShowsTheBasicsFirst(t *testing.T) {
	is := is.New(t)
	help := func(args ...string) (text string, err error) {
		var output strings.Builder
		err = Up(t.Context(), Environment{Stdout: &output, Getenv: func(string) string { return "" }}, args)
		return output.String(), err
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
		env := Environment{Stdout: &out, Interactive: interactive, Getenv: func(string) string { return noColor }}
		newRenderer(env).Note("", render.Red, "x")
		return out.String()
	}
	is.Equal(show(true, ""), "\x1b[31mx\x1b[0m\n")
	is.Equal(show(true, "1"), "x\n")
	is.Equal(show(false, ""), "x\n")
}

func TestLimitsComeFromFlagsBeforeTheEnvironment(t *testing.T) {
	is := is.New(t)
	variables := map[string]string{"POCKETCODER_MEMORY": "1GiB", "POCKETCODER_OPEN_FILES": "99",
		"POCKETCODER_TIMEOUT": "5m"}
	env := Environment{Stderr: io.Discard, Getenv: func(name string) string { return variables[name] }}
	fs := NewFlags(env, "worker", "")
	l, err := limitFlags(fs, env)
	is.NoErr(err)
	_, err = Parse(fs, []string{"--memory=512MiB", "--file-size", "1.5GB", "--cpu-time=90s", "--processes=0"}, 0)
	is.NoErr(err)
	want := app.WorkerLimits{Limits: limit.Limits{Memory: 512 << 20, FileSize: 1_500_000_000, CPUTime: 90 * time.Second,
		OpenFiles: 99}, Timeout: 5 * time.Minute}
	is.Equal(*l, want)

	fs = NewFlags(env, "worker", "")
	parsed, err := limitFlags(fs, Environment{Getenv: func(string) string { return "" }})
	is.NoErr(err)
	is.Equal(*parsed, *app.DefaultWorkerLimits())
	_, err = Parse(fs, l.Args(), 0)
	is.NoErr(err)
	is.Equal(*parsed, want) // the worker has what up was given
}

func TestBadLimitsAreNamed(t *testing.T) {
	is := is.New(t)
	env := Environment{Stderr: io.Discard, Getenv: func(name string) string {
		return map[string]string{"POCKETCODER_MEMORY": "plenty"}[name]
	}}
	_, err := limitFlags(NewFlags(env, "up", ""), env)
	is.True(err != nil)
	is.Equal(err.Error(), `POCKETCODER_MEMORY: size "plenty" is not a number with a unit, such as 512MiB or 4GiB`)

	var output strings.Builder
	env = Environment{Stderr: &output, Getenv: func(string) string { return "" }}
	err = Up(t.Context(), env, []string{"--memory", "12parsecs"})
	is.Equal(err, ErrUsage)
	expect.Contains(t, output.String(), `invalid value "12parsecs" for flag -memory: size "12parsecs" is not a number`)
}
