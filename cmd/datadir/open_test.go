package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
)

func TestADataDirectoryOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory to another user")
	}
	is := is.New(t)
	d := Dir(t.TempDir())
	is.NoErr(os.Chown(string(d), 12345, 0))
	_, err := d.Open()
	is.True(err != nil)
	expect.Contains(t, err.Error(), "it belongs to user 12345, and this process runs as user 0; choose another with --data")
}

func TestADirectoryOfOtherFilesIsNoDataDirectory(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	site := filepath.Join(t.TempDir(), "site")
	is.NoErr(os.Mkdir(site, 0o755))
	page := filepath.Join(site, "index.html")
	is.NoErr(os.WriteFile(page, nil, 0o644))
	is.NoErr(os.Chmod(page, 0o644))
	_, err := Dir(site).Open()
	is.True(err != nil)
	expect.Contains(t, err.Error(), `it holds "index.html" and is not a data directory of pocketcoder`)
	info, err := os.Stat(page)
	is.NoErr(err)
	is.Equal(info.Mode().Perm(), os.FileMode(0o644)) // nothing was changed
	entries, err := os.ReadDir(site)
	is.NoErr(err)
	is.Equal(len(entries), 1)
}

// A second up reads the directory while the running system creates and removes files in it.
func TestADirectoryCanBePreparedWhileFilesInItAreRemoved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := Dir(t.TempDir())
	prepared, ended := make(chan struct{}), make(chan error)
	go func() {
		var err error
		for err == nil {
			select {
			case <-prepared:
				ended <- nil
				return
			default:
			}
			err = errors.Join(os.MkdirAll(d.Path("nats", "batches", "a"), 0o755), os.RemoveAll(d.Path("nats")))
		}
		ended <- err
	}()
	var err error
	for i := 0; i < 2000 && err == nil; i++ {
		err = d.Prepare()
	}
	close(prepared)
	is.NoErr(<-ended)
	is.NoErr(err)
}
