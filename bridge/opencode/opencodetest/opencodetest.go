// Package opencodetest gives tests the real OpenCode: one installation in the user's cache directory, shared by all
// test packages and made by the first that needs it. It also has recorded event streams of the real OpenCode, each
// named after what happened in it.
package opencodetest

import (
	"os"
	"path/filepath"
	"testing"

	"pocketcoder/bridge/opencode/install"
	"pocketcoder/ops/expect"
)

// Tools finds OpenCode and ripgrep or installs them, which needs npm and takes about ten seconds the first time. Under
// -short the test is left out: each start of OpenCode takes seconds.
func Tools(t testing.TB) install.Tools {
	t.Helper()
	expect.Slow(t, "runs OpenCode")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	tools, err := install.Find(t.Context(), install.Options{
		Dir:      filepath.Join(cache, "pocketcoder", "npm"),
		Progress: func(line string) { t.Log(line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return tools
}
