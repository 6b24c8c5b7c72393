package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"pocketcoder/events/atomicfile"
	"pocketcoder/events/log/sleep"
)

// npm returns the path of a package's program, after installing the package unless that was done before. The directory
// appears by a rename when the program in it has answered, so its existence says that it is whole.
func (in Options) npm(ctx context.Context, p npmPackage) (string, error) {
	dir := filepath.Join(in.Dir, path.Base(p.name)+"-"+p.version)
	program := filepath.Join(dir, "program")
	if real, err := filepath.EvalSymlinks(program); err == nil {
		return real, nil
	}
	if err := in.install(ctx, p, dir); err != nil {
		return "", fmt.Errorf("install %s %s: %w", p.name, p.version, err)
	}
	return filepath.EvalSymlinks(program)
}

// install makes dir, or finds it made by another process.
func (in Options) install(ctx context.Context, p npmPackage, dir string) error {
	if err := os.MkdirAll(in.Dir, 0o755); err != nil {
		return err
	}
	unlock, err := in.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(filepath.Join(dir, "program")); err == nil {
		return nil
	}
	for _, old := range []string{dir, dir + ".new"} { // of a crash
		if err := os.RemoveAll(old); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir+".new", 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir + ".new")
	if err := in.runNPM(ctx, p, dir+".new"); err != nil {
		return err
	}
	program, err := p.choose(ctx, dir+".new")
	if err != nil {
		return err
	}
	if err := os.Symlink(program, filepath.Join(dir+".new", "program")); err != nil {
		return err
	}
	return os.Rename(dir+".new", dir)
}

// choose returns the program that runs on this machine, relative to dir.
func (p npmPackage) choose(ctx context.Context, dir string) (string, error) {
	var failures []error
	for _, program := range p.programs {
		program = filepath.Join("node_modules", program)
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			failures = append(failures, err)
			continue
		}
		_, err := VersionOf(ctx, filepath.Join(dir, program), "--version")
		if err == nil {
			return program, nil
		}
		failures = append(failures, err)
	}
	return "", fmt.Errorf("no program of it runs on this machine: %w", errors.Join(failures...))
}

// runNPM installs p into dir and reports every second how far it is.
func (in Options) runNPM(ctx context.Context, p npmPackage, dir string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return errors.New("npm is not on PATH: install Node.js 20 or newer, or install opencode and ripgrep yourself " +
			"and put them on PATH (opencode also by --opencode PATH)")
	}
	spec := p.name + "@" + p.version
	cmd := exec.CommandContext(ctx, npm, "install", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", spec)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	var out OutputTail
	cmd.Stdout, cmd.Stderr = &out, &out
	in.Progress("installing " + spec + " with npm")
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			in.Progress(fmt.Sprintf("installing %s: %ds, %d MB", spec, int(time.Since(began).Seconds()), treeSize(dir)>>20))
		case err := <-done:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				return fmt.Errorf("%w; its last lines:\n%s", err, &out)
			}
			in.Progress(fmt.Sprintf("installed %s in %.1fs", spec, time.Since(began).Seconds()))
			return nil
		}
	}
}

// lock keeps other processes from installing into Dir meanwhile, and waits while one of them does.
func (in Options) lock(ctx context.Context) (unlock func(), err error) {
	return AwaitLock(ctx, filepath.Join(in.Dir, "lock"), 200*time.Millisecond, func(error) {
		in.Progress("waiting for another process that is installing into " + in.Dir)
	})
}

// AwaitLock takes a lock, and tries again after each pause while another process has it. It calls report once with the
// error that says so.
func AwaitLock(ctx context.Context, path string, pause time.Duration, report func(error)) (unlock func(), err error) {
	for reported := false; ; reported = true {
		unlock, err = atomicfile.Lock(path)
		if !errors.Is(err, atomicfile.ErrLocked) {
			return unlock, err
		}
		if !reported {
			report(err)
		}
		if sleep.For(ctx, pause) != nil {
			return nil, ctx.Err()
		}
	}
}

// treeSize is the size of all files below dir in bytes, as far as it can be read.
func treeSize(dir string) (size int64) {
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // npm moves files about meanwhile
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
		return nil
	})
	return size
}

// OutputTail keeps the end of what a program prints, for an error to show: the last 4 KiB that were written. The zero
// value is empty.
type OutputTail struct{ kept []byte }

func (b *OutputTail) Write(p []byte) (int, error) {
	const most = 4 << 10 // bytes
	b.kept = append(b.kept, p...)
	b.kept = b.kept[max(0, len(b.kept)-most):]
	return len(p), nil
}

// Bytes returns what is kept. It is valid until the next write.
func (b *OutputTail) Bytes() []byte { return b.kept }

// String returns the last ten lines.
func (b *OutputTail) String() string {
	lines := strings.Split(strings.TrimSpace(string(b.kept)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
