package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/sandbox/realdir"
)

func TestNoDirectoryIsOpenedThroughALink(t *testing.T) {
	is := is.New(t)
	dir := t.TempDir()
	is.NoErr(os.MkdirAll(filepath.Join(dir, "real", "below"), 0o755))
	is.NoErr(os.Symlink("real", filepath.Join(dir, "link")))
	is.NoErr(os.Symlink(t.TempDir(), filepath.Join(dir, "far")))
	is.NoErr(os.WriteFile(filepath.Join(dir, "plain"), nil, 0o600))
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
	for path, want := range map[string]string{"link/file": "link is a symbolic link", "far/a": "far is a symbolic link",
		"link/below/file": "link is a symbolic link", "real/../link/file": "link is a symbolic link",
		"plain/file": "plain is a file"} {
		for _, create := range []bool{false, true} {
			_, err := realdir.OpenParent(root, path, create)
			is.True(errors.Is(err, realdir.ErrNotDirectory))
			is.Equal(err.Error(), "not a directory: "+want)
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
