package main

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/datadir"
)

// prepareForEverybody makes a data directory as an older version left it.
func prepareForEverybody(t *testing.T, p *process) {
	t.Helper()
	is := is.New(t)
	is.NoErr(os.MkdirAll(p.data.Path("nats"), 0o755))
	is.NoErr(os.Chmod(string(p.data), 0o755))
	is.NoErr(os.WriteFile(p.data.Path("version"), fmt.Appendf(nil, "%d\n", datadir.Version), 0o644))
	is.NoErr(os.WriteFile(p.data.Path("nats-address"), nil, 0o644))
}

func dataIsForItsOwnerAlone(t *testing.T, p *process) {
	is := is.New(t)
	chat := p.chat(t, bash("touch made"))
	p.turnEnds(t, chat)
	is.NoErr(filepath.WalkDir(string(p.data), func(path string, entry fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // SQLite and NATS remove files
		}
		is.NoErr(err)
		name := strings.TrimPrefix(path, string(p.data)+"/")
		if entry.IsDir() && slices.Contains([]string{"home", "npm", "opencode"}, name) {
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
	is.Equal(made.Mode().Perm(), fs.FileMode(0o644)) // a file of the user, with the mode of the user's umask

	status := func() (int, string) {
		c, err := health(p.HTTP)
		is.NoErr(err)
		return c.code, c.states["data"]
	}
	for path, mode := range map[string]fs.FileMode{string(p.data): 0o700, p.data.Path("keys", "worker.nk"): 0o600} {
		for _, wrong := range []fs.FileMode{0, 0o755} {
			is.NoErr(os.Chmod(path, wrong))
			code, state := status()
			is.Equal([]any{code, state}, []any{http.StatusServiceUnavailable, "offline"})
			is.NoErr(os.Chmod(path, mode))
		}
	}
	code, state := status()
	is.Equal([]any{code, state}, []any{http.StatusOK, "ready"})
}
