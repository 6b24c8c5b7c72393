package limit

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"
)

// The name of the parent is like those of systemd.
func TestCgroupsOfDeadWorkersAreRemoved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	parent := filepath.Join(t.TempDir(), `user\x2d[1000].slice`)
	living, dead := Worker{Marker: "pid:[1]/7/100/a", Workspace: "/elsewhere"},
		Worker{Marker: "pid:[1]/7/1/a", Workspace: "/elsewhere"}
	is.NoErr(os.MkdirAll(filepath.Join(parent, dead.groupName()), 0o755))
	is.NoErr(os.Mkdir(filepath.Join(parent, living.groupName()), 0o755))
	other := Worker{Workspace: t.TempDir(), IsDead: func(marker string) bool { return marker == dead.Marker }}
	other.removeDead(parent)
	left, err := os.ReadDir(parent)
	is.NoErr(err)
	is.Equal(len(left), 1)
	is.Equal(left[0].Name(), living.groupName())
}

// TestAnUnusableCgroupIsRemoved runs alone, because no file can be opened meanwhile.
func TestAnUnusableCgroupIsRemoved(t *testing.T) {
	is := is.New(t)
	g := &Groups{Dir: t.TempDir()}
	var limit unix.Rlimit
	is.NoErr(unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	is.NoErr(unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}))
	_, err := g.Make(7, Limits{})
	is.NoErr(unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	is.True(errors.Is(err, unix.EMFILE))
	left, err := os.ReadDir(g.Dir)
	is.NoErr(err)
	is.Equal(len(left), 0)
}
