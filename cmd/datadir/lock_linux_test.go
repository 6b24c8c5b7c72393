package datadir

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"
)

// A child has the files of this process open until its exec.
func TestReleasedDirectoryCanBeOpenedWhileAChildHasTheLockOpen(t *testing.T) {
	is := is.New(t)
	d := Dir(t.TempDir())
	release, err := d.Open()
	is.NoErr(err)
	open, err := filepath.Glob("/proc/self/fd/*")
	is.NoErr(err)
	i := slices.IndexFunc(open, func(name string) bool { path, _ := os.Readlink(name); return path == d.Path("lock") })
	fd, err := strconv.Atoi(filepath.Base(open[i]))
	is.NoErr(err)
	child, err := unix.Dup(fd)
	is.NoErr(err)
	defer unix.Close(child)
	release()
	release, err = d.Open()
	is.NoErr(err)
	release()
}
