package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/opencodetest"
)

// The administrator of the systems that tests start.
const (
	adminEmail    = "admin@example.org"
	adminPassword = "an administrator's password"
)

// TestTheOfficialSDKWorksUnmodified runs testdata/sdk/suite.test.mjs with Node against the real system.
func TestTheOfficialSDKWorksUnmodified(t *testing.T) {
	t.Parallel()
	opencodetest.Tools(t)
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("Node.js 20 is needed: ", err)
	}
	p := sharedSystem(t)
	suite := exec.CommandContext(t.Context(), node, "--test", "--test-reporter=spec", "suite.test.mjs")
	suite.Dir = sdkDir(t)
	suite.Env = append(os.Environ(), "POCKETCODER_URL="+p.Running.HTTP, "ADMIN_EMAIL="+adminEmail,
		"ADMIN_PASSWORD="+adminPassword)
	out, err := suite.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// sdkDir is a directory with the suite and the SDK beside it, installed once into the user's cache directory.
func sdkDir(t *testing.T) string {
	t.Helper()
	is := is.New(t)
	lock, err := os.ReadFile("testdata/sdk/package-lock.json")
	is.NoErr(err)
	cache, err := os.UserCacheDir()
	is.NoErr(err)
	sum := sha256.Sum256(lock)
	installed := filepath.Join(cache, "pocketcoder", "sdk-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(installed); err != nil {
		is.NoErr(os.MkdirAll(filepath.Dir(installed), 0o755))
		making, err := os.MkdirTemp(filepath.Dir(installed), "sdk-")
		is.NoErr(err)
		is.NoErr(os.CopyFS(making, os.DirFS("testdata/sdk")))
		install := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
		install.Dir = making
		out, err := install.CombinedOutput()
		if err != nil {
			t.Fatalf("install the SDK: %v\n%s", err, out)
		}
		if err := os.Rename(making, installed); err != nil { // another run was first
			is.NoErr(os.RemoveAll(making))
		}
	}
	dir := t.TempDir()
	is.NoErr(os.CopyFS(dir, os.DirFS("testdata/sdk")))
	is.NoErr(os.Symlink(filepath.Join(installed, "node_modules"), filepath.Join(dir, "node_modules")))
	return dir
}
