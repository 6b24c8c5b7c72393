package app

import (
	"os"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/datadir"
	"pocketcoder/ops/expect"
)

func TestAWorkspaceInTheDataDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := Options{Data: datadir.Dir(t.TempDir())}
	o.Workspace = o.Data.Path("project")
	is.NoErr(os.Mkdir(o.Workspace, 0o755))
	expect.Contains(t, o.CheckPlaces().Error(), "lies in --data")
}
