package realdir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/realdir"
)

func TestNoDirectoryIsOpenedThroughALink(t *testing.T) {
	is := is.New(t)
	dir := t.TempDir()
	is.NoErr(os.MkdirAll(filepath.Join(dir, "real", "below"), 0o755))
	is.NoErr(os.Symlink("real", filepath.Join(dir, "link")))
	root, err := os.OpenRoot(dir)
	is.NoErr(err)
	defer root.Close()
	for path, want := range map[string]error{"file": nil, "real/file": nil, "real/below/file": nil,
		"new/a/file": fs.ErrNotExist} {
		parent, err := realdir.OpenParent(root, path, false)
		is.True(errors.Is(err, want))
		if err == nil {
			is.NoErr(parent.Close())
		}
	}
	for _, path := range []string{"link/file", "link/below/file", "real/../link/file"} {
		for _, create := range []bool{false, true} {
			_, err := realdir.OpenParent(root, path, create)
			is.True(err != nil)
			is.Equal(err.Error(), "link is a symbolic link")
		}
	}
	parent, err := realdir.OpenParent(root, "new/a/file", true)
	is.NoErr(err)
	defer parent.Close()
	is.NoErr(parent.Mkdir("file", 0o755))
	info, err := os.Stat(filepath.Join(dir, "new", "a", "file"))
	is.NoErr(err)
	is.True(info.IsDir())
}
