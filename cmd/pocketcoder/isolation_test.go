package main

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/cli"
	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
)

func TestWrongUsageOfAWorkerIsReported(t *testing.T) {
	worker := []string{"worker", "--nats", "nats://127.0.0.1:1", "--key", "none.nk"}
	for name, c := range map[string]struct {
		args   []string
		memory string
		want   string
	}{
		"no flags": {[]string{"worker"}, "", "worker: --nats and --key are required; see pocketcoder worker -h"},
		// not guessed at
		"unknown isolation":    {append(worker, "--isolation", "docker"), "", `there is no isolation "docker"`},
		"no capacity":          {append(worker, "--capacity", "0"), "", "--capacity must be at least 1"},
		"time that is none":    {append(worker, "--timeout", "-1s"), "", "--timeout -1s: want a duration, or 0 for no limit"},
		"limit that is none":   {append(worker, "--processes", "-1"), "", "limit processes of -1 is negative"},
		"broken variable":      {worker, "plenty", `worker: POCKETCODER_MEMORY: size "plenty"`},
		"flags before":         {[]string{"sandbox", "--data", "/x", "ps"}, "", "sandbox: flags of ps follow it: pocketcoder sandbox ps …\n"},
		"flags of both before": {append([]string{"sandbox"}, append(slices.Clone(worker[1:]), "logs", "x1")...), "", "sandbox: flags of logs follow it"},
		"no subcommand":        {[]string{"sandbox"}, "", "sandbox: which of ps, logs, kill, shell and workers?"},
		"by its former name":   {append([]string{"sandbox"}, append(slices.Clone(worker[1:]), "--capacity", "0")...), "", "--capacity must be at least 1"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			env, output := environment(map[string]string{"POCKETCODER_MEMORY": c.memory})
			is.Equal(run(t.Context(), env, c.args), cli.ErrUsage)
			expect.Contains(t, output.String(), c.want) // c.says
		})
	}
}

func TestDoctorRefusesAnUnknownLevel(t *testing.T) {
	is := is.New(t)
	stdout, stderr, err := runApp(t, "doctor", "--isolation", "steel")
	is.Equal(err, cli.ErrUsage)
	is.Equal(stdout, "")
	is.Equal(stderr, "pocketcoder: doctor: --isolation: there is no isolation \"steel\": choose auto, bwrap, landlock, container or none\n")
}

func TestHealthReportsTheIsolationLevel(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	is := is.New(t)
	choice, err := isolation.Choose(isolation.Auto)
	is.NoErr(err)
	var health struct {
		Data struct {
			Sandbox struct {
				Detail struct{ Isolation, Reason string }
			}
		}
	}
	is.NoErr(json.Unmarshal([]byte(p.admin(t).do(t, "GET", "/api/health", nil).body), &health))
	is.Equal(health.Data.Sandbox.Detail.Isolation, string(choice.Level))
	is.Equal(health.Data.Sandbox.Detail.Reason, choice.Reason)
}
