package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

const shellName = "pocketcoder-shell"

// findShell gives the path of pocketcoder-shell: beside this program, on PATH, or, when this program was started from
// its source, built from there.
func findShell(ctx context.Context, d dataDir, progress func(string)) (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), shellName)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return beside, nil
		}
	}
	_, file, _, _ := runtime.Caller(0)
	source := filepath.Join(filepath.Dir(file), "..", shellName)
	if _, err := os.Stat(filepath.Join(source, "main.go")); err == nil {
		return buildShell(ctx, source, d.path("bin", shellName), progress)
	}
	path, err := exec.LookPath(shellName)
	if err != nil {
		return "", errors.New("pocketcoder-shell, which OpenCode runs commands with, is neither beside this program nor on PATH; build it with: go build ./cmd/pocketcoder-shell")
	}
	return filepath.Abs(path)
}

// buildSays is how often a build says that it goes on.
const buildSays = 2 * time.Second

// buildShell costs a fraction of a second when nothing has changed, and with an empty build cache some ten.
func buildShell(ctx context.Context, source, to string, progress func(string)) (string, error) {
	const what = "building pocketcoder-shell from source"
	progress(what)
	began, say := time.Now(), time.NewTicker(buildSays)
	done := make(chan struct{})
	defer func() { say.Stop(); close(done) }()
	go func() {
		for {
			select {
			case <-say.C:
				progress(fmt.Sprintf("%s: %.0fs", what, time.Since(began).Seconds()))
			case <-done:
				return
			}
		}
	}()
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", to, ".")
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0") // a static program starts 1 ms sooner
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build pocketcoder-shell: %w\n%s", err, out)
	}
	return to, nil
}
