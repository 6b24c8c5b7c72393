package main

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
)

func TestTheDataDirectoryIsForItsOwnerAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := prepare(t, t.TempDir(), "--allow", "bash: touch made")
	is.NoErr(os.MkdirAll(p.data.path("nats"), 0o755))
	is.NoErr(os.Chmod(string(p.data), 0o755))
	is.NoErr(os.WriteFile(p.data.path("version"), []byte(layoutVersion+"\n"), 0o644))
	is.NoErr(os.WriteFile(p.data.path("nats-address"), nil, 0o644)) // as an older version left it
	p.runForTest()
	chat := p.chat(t, bash("touch made"))
	p.turnEnds(t, chat)
	is.NoErr(filepath.WalkDir(string(p.data), func(path string, entry fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // SQLite and NATS remove files
		}
		is.NoErr(err)
		name := strings.TrimPrefix(path, string(p.data)+"/")
		if entry.IsDir() && slices.Contains(othersParts, name) {
			return fs.SkipDir
		}
		info, err := entry.Info()
		if err == nil && info.Mode()&0o077 != 0 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return nil
	}))
	made, err := os.Stat(filepath.Join(p.workspace, "made"))
	is.NoErr(err)
	is.Equal(made.Mode().Perm(), fs.FileMode(0o644)) // a file of the person's, as the person's umask has it

	status := func() (int, string) {
		c, err := health(p.HTTP)
		is.NoErr(err)
		return c.code, c.states["data"]
	}
	for path, mode := range map[string]fs.FileMode{string(p.data): 0o700, p.data.path("keys", "worker.nk"): 0o600} {
		for _, wrong := range []fs.FileMode{0, 0o755} {
			is.NoErr(os.Chmod(path, wrong))
			code, state := status()
			is.Equal([]any{code, state}, []any{http.StatusServiceUnavailable, "offline"})
			is.Equal(string(checkData(p.data).State), "wrong")
			is.NoErr(os.Chmod(path, mode))
		}
	}
	code, state := status()
	is.Equal([]any{code, state}, []any{http.StatusOK, "ready"})
}

func TestADataDirectoryOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory to another user")
	}
	is := is.New(t)
	d := dataDir(t.TempDir())
	is.NoErr(os.Chown(string(d), 12345, 0))
	_, err := d.open()
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
	_, err := dataDir(site).open()
	is.True(err != nil)
	expect.Contains(t, err.Error(), `it holds "index.html" and is not a data directory of pocketcoder`)
	info, err := os.Stat(page)
	is.NoErr(err)
	is.Equal(info.Mode().Perm(), os.FileMode(0o644)) // nothing was changed
	entries, err := os.ReadDir(site)
	is.NoErr(err)
	is.Equal(len(entries), 1)
	o := upOptions{data: dataDir(site), workspace: filepath.Join(site, "project")}
	is.NoErr(os.Mkdir(o.workspace, 0o755))
	expect.Contains(t, o.checkPlaces().Error(), "lies in --data")
}
