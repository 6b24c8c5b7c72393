package worker

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/sandbox/isolation"
)

func TestWorkerWithoutIsolationRefusesWithTheCure(t *testing.T) {
	is := is.New(t)
	t.Setenv("PATH", t.TempDir())
	choice, err := chooseIsolation("bwrap")
	is.NoErr(err)
	is.Equal(choice.Level, isolation.Level(""))
	is.True(strings.HasPrefix(choice.String(), "refused: no commands can be isolated: bwrap does not work here: bubblewrap is not installed"))
}
