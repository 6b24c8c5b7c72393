package admin

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/datadir"
	"pocketcoder/ops/expect"
)

func TestNATSContextIsReadOnly(t *testing.T) {
	is := is.New(t)
	d, config := announcedDirectory(t), t.TempDir()
	env, out := environment(map[string]string{"XDG_CONFIG_HOME": config})
	is.NoErr(runNATSContext(t.Context(), env, []string{"--data", string(d)}))
	path := filepath.Join(config, "nats", "context", "pocketcoder.json")
	body, err := os.ReadFile(path)
	is.NoErr(err)
	is.Equal(string(body), strings.ReplaceAll(`{
  "description": "PocketCoder at DATA, read only",
  "url": "nats://127.0.0.1:4333",
  "nkey": "DATA/keys/observer.nk",
  "inbox_prefix": "_INBOX_OBSERVER",
  "jetstream_api_prefix": "READ.API"
}
`, "DATA", string(d)))
	expect.Contains(t, out.String(), "wrote "+path)
	expect.Contains(t, out.String(), "nats --context pocketcoder sub 'evt.chat.*.opencode.permission.>'")
	info, err := os.Stat(string(d) + "/keys/observer.nk")
	is.NoErr(err)
	is.Equal(info.Mode().Perm(), os.FileMode(0o600))
}

func TestPrintedNATSContextWritesNothing(t *testing.T) {
	is := is.New(t)
	d, config := announcedDirectory(t), t.TempDir()
	env, out := environment(map[string]string{"XDG_CONFIG_HOME": config})
	is.NoErr(runNATSContext(t.Context(), env, []string{"--data", string(d), "--print"}))
	is.True(json.Valid(out.Bytes()))
	left, err := os.ReadDir(config)
	is.NoErr(err)
	is.Equal(len(left), 0)
}

// announcedDirectory returns a data directory that names this process as its running system.
func announcedDirectory(t *testing.T) datadir.Dir {
	t.Helper()
	d := datadir.Dir(t.TempDir())
	if err := d.Announce(datadir.Running{PID: os.Getpid(), NATS: "nats://127.0.0.1:4333"}); err != nil {
		t.Fatal(err)
	}
	return d
}
