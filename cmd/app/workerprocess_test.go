package app

import (
	"errors"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/sandbox/isolation"
	"pocketcoder/web/api"
)

func TestWorkerThatRefusesEveryCommandIsDegraded(t *testing.T) {
	is := is.New(t)
	refused := isolation.Choice{Reason: "no commands can be isolated"}
	var said []string
	w := &workerProcess{Ready: func(status string) { said = append(said, status) }, Changed: func() {}}
	is.Equal(w.Health().State, api.Starting)
	w.announce(1, "landlock: it works")
	is.Equal(w.Health().State, api.Ready)
	w.pid.Store(0)
	w.announce(2, "landlock: it works") // it was started again
	is.Equal(len(said), 1)
	w.announce(3, refused.String())
	is.Equal(said, []string{"landlock: it works", refused.String()}) // a change of the isolation is reported
	is.Equal(w.Health().State, api.Degraded)
	is.True(api.Health{"sandbox": w.Health()}.Ready()) // the process is: it answers, with the reason
	w.pid.Store(0)
	is.Equal(w.Health().State, api.Starting)
}

func TestAWorkerReportsWhyItCanRunNoCommands(t *testing.T) {
	is := is.New(t)
	w := &workerProcess{Ready: func(string) {}, Changed: func() {}}
	err := w.read(1, workerUnusable+" commands cannot see their shell /tmp/bash\n")
	is.True(errors.Is(err, ErrWorkerUnusable))
	is.Equal(err.Error(), "the sandbox cannot run commands: commands cannot see their shell /tmp/bash")
	is.NoErr(w.read(1, "")) // it ended without a word
	is.NoErr(w.read(1, workerReady+" none: as chosen\n"))
	is.Equal(w.Health().State, api.Ready)
}
