package datadir

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
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

func TestDataOfANewerVersionIsRefusedAndDataOfAnOlderOneIsMarked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := Dir(filepath.Join(t.TempDir(), "data"))
	version := func() string { return strings.TrimSpace(expect.ReadFile(t, d.Path("version"))) }
	open := func() {
		release, err := d.Open()
		is.NoErr(err)
		release()
	}
	open()
	is.Equal(version(), strconv.Itoa(Version))

	is.NoErr(os.WriteFile(d.Path("version"), []byte("1\n"), 0o600))
	is.NoErr(d.Prepare())
	is.Equal(version(), "1") // another process may use it
	open()
	is.Equal(version(), strconv.Itoa(Version)) // so that an older pocketcoder refuses what this one stores

	for text, want := range map[string]string{
		strconv.Itoa(Version + 1): "a newer pocketcoder has stored data of version 3 in it, and this pocketcoder knows versions up to 2",
		"":                        `its file version contains ""`,
	} {
		is.NoErr(os.WriteFile(d.Path("version"), []byte(text), 0o600))
		_, err := d.Open()
		is.True(err != nil)
		expect.Contains(t, err.Error(), "open data directory "+string(d)+": "+want)
		is.Equal(version(), text) // nothing was changed
	}
}

// The examples of what is stored, and Version when they were made. An older pocketcoder does not know a kind of event
// that was added later.
func TestAChangeOfWhatIsStoredIsAQuestionOfTheVersion(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const want = "2 2436dfee4b037d46"
	sum := sha256.New()
	for _, pattern := range []string{"kinds", "subjects.txt", "../log/testdata/streams"} {
		root := filepath.Join("../../events/testdata", pattern)
		is.NoErr(filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			fmt.Fprintf(sum, "%s\n%s\n", entry.Name(), expect.ReadFile(t, path))
			return nil
		}))
	}
	if got := fmt.Sprintf("%d %x", Version, sum.Sum(nil)[:8]); got != want {
		t.Errorf("what is stored has changed. If an older pocketcoder cannot read it, raise Version. Then want is %q", got)
	}
}
