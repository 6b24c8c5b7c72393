package app

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"pocketcoder"

	"pocketcoder/cmd/datadir"
)

const shellName = "pocketcoder-shell"

// findOwnShell returns the path of pocketcoder-shell: the file beside this program, or one that it builds from the
// source in this program. It ignores the current directory and PATH, where an attacker could place another program.
func findOwnShell(ctx context.Context, d datadir.Dir, progress func(string)) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find pocketcoder-shell: %w", err)
	}
	beside := filepath.Join(filepath.Dir(self), shellName)
	if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
		return beside, nil
	}
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("find pocketcoder-shell: %s is not an executable file, and Go, which could build it, is not on PATH; put the two programs into one directory", beside)
	}
	return buildShell(ctx, d.Path("bin"), progress)
}

// reportEvery is how often a build reports its progress.
const reportEvery = 2 * time.Second

// buildShell builds the shell in dir. It takes a fraction of a second if nothing has changed, and about ten seconds
// with an empty build cache.
func buildShell(ctx context.Context, dir string, progress func(string)) (string, error) {
	const what = "building pocketcoder-shell from source"
	progress(what)
	began, ticker := time.Now(), time.NewTicker(reportEvery)
	done := make(chan struct{})
	defer func() { ticker.Stop(); close(done) }()
	go func() {
		for {
			select {
			case <-ticker.C:
				progress(fmt.Sprintf("%s: %.0fs", what, time.Since(began).Seconds()))
			case <-done:
				return
			}
		}
	}()
	source, to := filepath.Join(dir, "source"), filepath.Join(dir, shellName)
	if err := os.RemoveAll(source); err != nil {
		return "", fmt.Errorf("build pocketcoder-shell: %w", err)
	}
	if err := os.CopyFS(source, pocketcoder.ShellSource); err != nil {
		return "", fmt.Errorf("build pocketcoder-shell: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", to, "./cmd/pocketcoder-shell")
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off") // a static program starts 1 ms sooner
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build pocketcoder-shell: %w\n%s", err, out)
	}
	return to, nil
}
