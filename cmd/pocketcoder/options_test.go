package main

import (
	"os"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
)

func TestAWorkspaceInTheDataDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := upOptions{data: dataDir(t.TempDir())}
	o.workspace = o.data.path("project")
	is.NoErr(os.Mkdir(o.workspace, 0o755))
	expect.Contains(t, o.checkPlaces().Error(), "lies in --data")
}
