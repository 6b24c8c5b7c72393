package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/sandbox/isolation"
)

func TestUnknownIsolationIsNotGuessedAt(t *testing.T) {
	is := is.New(t)
	env, _ := toEnvironment(nil)
	err := app(t.Context(), env, []string{"sandbox", "--nats", "nats://127.0.0.1:1", "--key", "none.nk", "--isolation", "docker"})
	is.True(errors.Is(err, isolation.ErrUnknown))
	is.True(strings.Contains(err.Error(), `there is no isolation "docker"`))
}

func TestDoctorHasNoCureForALevelThatIsNone(t *testing.T) {
	is := is.New(t)
	stdout, stderr, err := runApp(t, "doctor", "--isolation", "steel")
	is.Equal(err, errUsage)
	is.Equal(stdout, "")
	is.Equal(stderr, "doctor: --isolation: there is no isolation \"steel\": choose auto, bwrap, landlock, container or none\n")
}

func TestWorkerWithoutIsolationRefusesWithTheCure(t *testing.T) {
	is := is.New(t)
	t.Setenv("PATH", t.TempDir())
	found, err := chooseIsolation("bwrap")
	is.NoErr(err)
	is.Equal(found.Level, isolation.Level(""))
	is.True(strings.HasPrefix(found.String(), "refused: no commands can be isolated: bwrap does not work here: bubblewrap is not installed"))
	c := checkIsolation("bwrap")
	is.Equal(c.State, checkMissing)
	is.True(strings.Contains(c.Found, "apt install bubblewrap"))
	is.Equal(checkIsolation("none").State, checkWrong)
}

func TestHealthSaysBehindWhichWallsCommandsRun(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	is := is.New(t)
	found, err := isolation.Choose(isolation.Auto)
	is.NoErr(err)
	var health struct {
		Data struct {
			Sandbox struct {
				Detail struct{ Isolation, Reason string }
			}
		}
	}
	is.NoErr(json.Unmarshal([]byte(p.admin(t).do(t, "GET", "/api/health", nil).body), &health))
	is.Equal(health.Data.Sandbox.Detail.Isolation, string(found.Level))
	is.Equal(health.Data.Sandbox.Detail.Reason, found.Reason)
}
