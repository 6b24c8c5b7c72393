package opencode

import (
	"bytes"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

// OpenCode ends at a damaged database. What it stores there is not worth a system that does not start.
func TestADamagedDatabaseIsMovedAside(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func([]byte) []byte
		moved  int
	}{
		"truncated":          {func(b []byte) []byte { return b[:len(b)/2] }, 1},
		"another file":       {func(b []byte) []byte { return bytes.Repeat([]byte("x"), len(b)) }, 1},
		"a page of zeros":    {func(b []byte) []byte { clear(b[4096:8192]); return b }, 1},
		"nothing is damaged": {func(b []byte) []byte { return b }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			// It ends like OpenCode while there is a database, and otherwise in another way.
			s := newTestSupervisor(t, t.TempDir(), `cd "$XDG_DATA_HOME/opencode"
echo start >>"$HOME/starts"
test ! -e opencode.db || { echo SQLiteError >&2; exit 3; }
test ! -e opencode.db-wal || { echo there is a log of another database >&2; exit 4; }
echo there is no database >&2; exit 5`)
			var log bytes.Buffer
			s.Logger = slog.New(slog.NewTextHandler(&log, nil))
			path := s.path("data", "opencode", "opencode.db")
			writeDatabase(t, path)
			text, err := os.ReadFile(path)
			is.NoErr(err)
			text = c.damage(text)
			is.NoErr(os.WriteFile(path, text, 0o600))
			is.NoErr(os.WriteFile(path+"-wal", nil, 0o600))

			err = s.Run(t.Context())
			is.True(err != nil)
			copies, _ := filepath.Glob(s.path(DamagedDir, "*", "opencode.db"))
			is.Equal(len(copies), c.moved)
			if c.moved == 0 {
				expect.Contains(t, err.Error(), "SQLiteError")
				is.True(!strings.Contains(log.String(), "moved aside"))
				return
			}
			expect.Contains(t, err.Error(), "there is no database")
			is.Equal(expect.ReadFile(t, copies[0]), string(text))
			expect.Contains(t, log.String(), "OpenCode's database is damaged and was moved aside")
			expect.Contains(t, log.String(), filepath.Dir(copies[0]))
			is.Equal(strings.Count(expect.ReadFile(t, s.path("home", "starts")), "start"), 1+maxFirstStarts)
		})
	}
}

// writeDatabase writes an SQLite database with several pages.
func writeDatabase(t *testing.T, path string) {
	t.Helper()
	is := is.New(t)
	is.NoErr(os.MkdirAll(filepath.Dir(path), 0o700))
	db, err := sql.Open("sqlite", path)
	is.NoErr(err)
	defer db.Close()
	_, err = db.Exec("CREATE TABLE session (id TEXT PRIMARY KEY, text TEXT)")
	is.NoErr(err)
	for i := range 20 {
		_, err = db.Exec("INSERT INTO session VALUES (?, ?)", i, strings.Repeat("text ", 800))
		is.NoErr(err)
	}
}
