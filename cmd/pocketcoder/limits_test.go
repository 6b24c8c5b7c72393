package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/sandbox/limit"
)

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
	is.Equal(*again, commandLimits{limit.Default(), sandboxTimeout})
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
