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
	found, err := chooseIsolation("bwrap")
	is.NoErr(err)
	is.Equal(found.Level, isolation.Level(""))
	is.True(strings.HasPrefix(found.String(), "refused: no commands can be isolated: bwrap does not work here: bubblewrap is not installed"))
}
