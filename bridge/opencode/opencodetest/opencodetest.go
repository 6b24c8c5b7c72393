// Package opencodetest gives tests the real OpenCode: one installation in the user's cache directory, shared by all
// test packages and made by the first that needs it. It also has recorded event streams of the real OpenCode, each
// named after what happened in it.
package opencodetest

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"pocketcoder/bridge/opencode/install"
	"pocketcoder/ops/expect"
)

// version is another one than that of the product only in a run of the program enginetest.
var version = flag.String("opencode.version", install.OpenCodeVersion, "`version` of OpenCode that the tests run")

// Tools finds OpenCode and ripgrep or installs them, which needs npm and takes about ten seconds the first time. Under
// -short the test is left out: each start of OpenCode takes seconds.
func Tools(t testing.TB) install.Tools {
	t.Helper()
	expect.Slow(t, "runs OpenCode")
	tools, err := Find(t.Context(), *version, func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	return tools
}

// Find is Tools for a version of OpenCode. Each version has a directory of its own.
func Find(ctx context.Context, version string, progress func(line string)) (install.Tools, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return install.Tools{}, err
	}
	return install.Find(ctx, install.Options{Dir: filepath.Join(cache, "pocketcoder", "npm"), Version: version,
		Progress: progress})
}
