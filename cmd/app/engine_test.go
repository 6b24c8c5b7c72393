package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/datadir"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
)

// The directory of a project is checked again at each use, because it can be replaced after it was added.
func TestAProjectWhoseDirectoryLeadsElsewhereIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := openedModel(t)
	s.records = recordtype.Open(s.log, recordtype.Machine{})
	dir, err := filepath.EvalSymlinks(t.TempDir())
	is.NoErr(err)
	s.o.Data = datadir.Dir(filepath.Join(dir, "data"))
	web, other := filepath.Join(dir, "web"), filepath.Join(dir, "other")
	is.NoErr(os.Mkdir(other, 0o700))
	is.NoErr(os.Mkdir(web, 0o700))
	_, err = project.Ensure(t.Context(), s.records, project.Project{ID: "web", Name: "web", Directory: web})
	is.NoErr(err)
	found, err := s.directory(t.Context(), "web")
	is.NoErr(err)
	is.Equal(found, web)
	refused := func(why string) {
		t.Helper()
		_, err := s.directory(t.Context(), "web")
		is.True(err != nil)
		expect.Contains(t, err.Error(), why)
	}
	s.o.Expose = []string{dir}
	refused("the commands of each project can read it")
	s.o.Expose = nil
	is.NoErr(os.Remove(web))
	refused("is not there")
	is.NoErr(os.Symlink(other, web))
	refused("leads to " + other)
}
